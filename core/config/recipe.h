// recipe.h - how the model is trained: every key of the recipe, its values and its default.
//
// The table in recipe.cc is the single list of keys: the parser, the resolved recipe in reports, the CLI flags and the
// JSON schema all come from it. Unknown keys are Problems that name the nearest known one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/problem.h"

namespace ledger {

// Spellings in JSON: '_' in an enumerator stands for '-' where the contract says so (amp_bf16 is "amp-bf16"); "4bit"
// names carry no such change (adamw_8bit is "adamw_8bit").
enum class Stack : std::uint8_t {
  hf,
  hf_4,
  torchtune,
  torchtitan,
  torchtitan_0_2_0,  // "torchtitan-0.2.0"
  torchtitan_0_1,    // "torchtitan-0.1"
  torchtitan_0_0_2,  // "torchtitan-0.0.2"
  litgpt,
  megatron,
  native,
  course
};
constexpr bool is_torchtitan(Stack stack) {
  return stack >= Stack::torchtitan && stack <= Stack::torchtitan_0_0_2;
}
enum class Method : std::uint8_t { full, lora, qlora };
enum class Precision : std::uint8_t { bf16, amp_bf16, amp_fp16, fp32, megatron_bf16, megatron_bf16_bf16grad };
enum class Optimizer : std::uint8_t {
  adamw_fused,
  adamw_foreach,
  adamw_forloop,
  adamw_8bit,
  paged_adamw_8bit,
  adamw_ao_8bit,
  adamw_ao_4bit,
  sgd,
  sgd_momentum,
  adafactor_torch,
  adafactor_hf,
  lion,
  muon,
  galore_adamw
};
enum class Attention : std::uint8_t { sdpa, flash, efficient, math, eager, cudnn };
enum class Checkpointing : std::uint8_t { none, full, full_reentrant, selective, offload };
enum class RecomputeMethod : std::uint8_t { uniform, block };
enum class TransformerImpl : std::uint8_t { transformer_engine, local };
enum class Loss : std::uint8_t {
  full,
  chunked,
  fused_linear,
  fused_linear_0_6,  // "fused_linear_0.6"
  cut,
  vocab_parallel,
  vocab_parallel_fused
};
enum class AdapterDtype : std::uint8_t { fp32, bf16 };
enum class Units : std::uint8_t { layers, titan };
enum class ShardDtype : std::uint8_t { bf16, fp32 };
enum class Offload : std::uint8_t { none, optimizer, params, activations };
enum class AllocatorKind : std::uint8_t { torch, torch_expandable };
enum class Task : std::uint8_t { training, generate };
enum class Weights : std::uint8_t { unquantised, int8, nf4 };
enum class KvCacheKind : std::uint8_t { dynamic, fixed, quantized };  // "dynamic", "static", "quantized"
enum class PrefillLogits : std::uint8_t { last, all };
enum class PipelineSchedule : std::uint8_t { one_f_one_b, interleaved };  // "1f1b", "interleaved"
// How keys and values reach the ranks that share a sequence; automatic: the stack's own way.
enum class CpComm : std::uint8_t { automatic, p2p, all_gather, a2a, a2a_p2p };  // "auto", "p2p", ..., "a2a_p2p"
enum class OverlapComm : std::uint8_t { automatic, on, off };                   // "auto"
enum class DeepSpeed : std::uint8_t { v0_19, v0_18_2 };                         // "0.19", "0.18.2"

struct Recipe {
  Stack stack = Stack::hf;
  Method method = Method::full;
  Precision precision = Precision::bf16;
  bool autocast = false;
  Optimizer optimizer = Optimizer::adamw_fused;
  std::uint64_t batch = 1;
  std::uint64_t seq = 2048;
  std::uint64_t decoder_seq = 0;  // of an encoder-decoder, whose encoder reads seq tokens; 0: as many
  std::uint64_t grad_accum = 1;
  Attention attention = Attention::sdpa;
  TransformerImpl transformer_impl = TransformerImpl::transformer_engine;  // Megatron's
  Checkpointing checkpointing = Checkpointing::none;
  // Megatron's, with full: units of so many layers, or the first so many layers, of a stage or chunk.
  RecomputeMethod recompute_method = RecomputeMethod::uniform;
  std::uint64_t recompute_num_layers = 1;
  Loss loss = Loss::full;
  bool liger = false;  // Liger-Kernel's norms, rotary embedding and SwiGLU; its loss is Loss::fused_linear
  bool compile = false;
  bool float8 = false;             // linear layers of the decoder layers multiply in float8
  bool float8_all_gather = false;  // and their weights are gathered so
  bool keep_outputs = false;
  std::uint64_t images = 1;                         // of a vision-language model's sequence
  std::uint64_t image_height = 0, image_width = 0;  // in pixels; 0: as image_grid.h says
  bool freeze_vision_tower = false;                 // LLaMA-Factory's word: no gradients, no adapters there
  std::uint64_t rank = 16;
  std::vector<std::string> targets = {"all-linear"};  // JSON: a string or a list of strings
  double lora_dropout = 0;
  AdapterDtype adapter_dtype = AdapterDtype::fp32;
  bool dora = false;
  bool double_quant = true;
  bool prepare_kbit = true;
  Task task = Task::training;
  Weights weights = Weights::unquantised;  // while generating
  std::uint64_t new_tokens = 128;
  KvCacheKind kv_cache = KvCacheKind::dynamic;
  PrefillLogits prefill_logits = PrefillLogits::last;
  bool no_grad = true;
  std::uint64_t dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  CpComm cp_comm_type = CpComm::automatic;
  std::uint64_t cp_a2a_ranks = 2;  // of a2a_p2p: neighbours that exchange heads
  std::uint64_t etp = 0;           // of experts, in place of tp; 0: tp
  bool sequence_parallel = false;
  std::uint64_t zero = 0;
  // DeepSpeed's keys, in elements; 0: as Hugging Face's Trainer fills in "auto" (parallel/deepspeed.h).
  std::uint64_t reduce_bucket_size = 0, prefetch_bucket_size = 0, param_persistence_threshold = 0;
  std::uint64_t max_live_parameters = 1'000'000'000, max_reuse_distance = 1'000'000'000;
  std::uint64_t sub_group_size = 1'000'000'000;
  OverlapComm overlap_comm = OverlapComm::automatic;
  bool reduce_scatter = true;
  DeepSpeed deepspeed = DeepSpeed::v0_19;  // its release: from 0.18.3 on, or up to 0.18.2
  PipelineSchedule pipeline_schedule = PipelineSchedule::one_f_one_b;
  std::uint64_t num_layers_per_virtual_pipeline_stage = 1;  // of an interleaved stage's chunks
  std::uint64_t decoder_first_pipeline_num_layers = 0;      // of the first and the last stage; 0: as between them
  std::uint64_t decoder_last_pipeline_num_layers = 0;
  std::uint64_t micro_batches = 1;
  std::uint64_t fsdp = 0;
  Units units = Units::layers;
  bool reshard_after_forward = true;
  bool fsdp_activation_checkpointing = false;  // accelerate's: checkpointed regions lie within FSDP's units
  ShardDtype param_dtype = ShardDtype::bf16;
  ShardDtype reduce_dtype = ShardDtype::fp32;
  bool ddp_bucket_view = false;
  Offload offload = Offload::none;
  std::string gpu = "h100-80gb";         // id in the GPU catalogue (gpu.h); unknown ids are Problems
  std::uint64_t memory_limit_bytes = 0;  // 0: the GPU's own capacity
  AllocatorKind allocator = AllocatorKind::torch;

  bool operator==(const Recipe&) const = default;
};

// One row of the key table, for flags, help and schema.
struct RecipeKey {
  const char* name;  // JSON key; the flag is --name with '-' for '_'
  enum class Kind : std::uint8_t { choice, flag, integer, real, names, text } kind;
  std::span<const char* const> choices;  // spellings, for choice and for text ("gpu": the catalogue's ids)
  std::uint64_t low, high;               // of an integer or a real; how many, of names
};
std::span<const RecipeKey> recipe_keys();

// Missing keys take their default; null is "not given". `base` supplies the defaults (e.g. flags over a file).
Result<Recipe> recipe_from(const Json& root, const Recipe& base = {});
Result<Recipe> read_recipe(std::string_view text, const Recipe& base = {});

// `base` with one key set from the text of a flag or a URL: flags take true/false, 1/0, yes/no, on/off and "" (given),
// names are separated by commas, memory_limit_bytes takes "24GiB", "24GB" or plain bytes (memory_size.h).
Result<Recipe> with_recipe_text(const Recipe& base, std::string_view key, std::string_view text);

// Every key, resolved, in table order: the "recipe" object of reports.
void write_recipe(JsonWriter& out, const Recipe& recipe);

// The value of `key` as text that with_recipe_text reads back ("16", "amp-bf16", "true", "q_proj,v_proj"); "" for no
// such key.
std::string recipe_value(const Recipe& recipe, std::string_view key);

}  // namespace ledger
