// Ranks that share data train as one process with all of it does: in fp64 losses and weights agree to 1e-12, and each
// rank's memory is what was predicted for it, event by event.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "core/parallel/mesh_of.h"
#include "forked_ranks.h"
#include "probe/host/run_host.h"
#include "probe/measured.h"
#include "tests/probe/tiny_configs.h"
#include "tests/probe/widen.h"

namespace ledger {
namespace {

constexpr std::uint32_t kSteps = 4;
constexpr double kTolerance = 1e-12;

// Nothing of it can be divided by four, and little by two: shards of every parameter end in padding.
constexpr const char* kOdd = R"({"model_type": "llama", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 35, "vocab_size": 61})";
// Four ranks can share heads, width, vocabulary and sequence; nothing else is even.
constexpr const char* kCuttable = R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 36, "vocab_size": 68})";
constexpr const char* kCuttableQwen3 = R"({"model_type": "qwen3", "hidden_size": 20, "head_dim": 6,
  "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 36,
  "vocab_size": 68})";
// Stages with other numbers of layers than their neighbours.
constexpr const char* kTitanDeep = R"({"model_type": "llama", "hidden_size": 12, "num_hidden_layers": 7,
  "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 10, "vocab_size": 30})";
constexpr const char* kTitanQwen3 = R"({"model_type": "qwen3", "hidden_size": 10, "head_dim": 6,
  "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 9,
  "vocab_size": 31})";
// Megatron pads the vocabulary to a multiple of 128 on every rank.
constexpr const char* kMegatronLlama = R"({"model_type": "llama", "hidden_size": 24, "num_hidden_layers": 4,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 6, "intermediate_size": 36, "vocab_size": 512})";
constexpr const char* kMegatronDeep = R"({"model_type": "llama", "hidden_size": 12, "num_hidden_layers": 12,
  "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 20, "vocab_size": 128})";
constexpr const char* kMegatronGpt = R"({"model_type": "gpt2", "n_embd": 24, "n_layer": 4, "n_head": 4,
  "vocab_size": 512, "n_positions": 16, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0})";
constexpr const char* kExperts = R"({"model_type": "mixtral", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "num_experts_per_tok": 2})";
constexpr const char* kGptOss = R"({"model_type": "gpt_oss", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 5})";
constexpr const char* kDeepseek2 = R"({"model_type": "deepseek_v2", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 35, "vocab_size": 61, "q_lora_rank": null,
  "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 3,
  "num_experts_per_tok": 2, "moe_intermediate_size": 11, "n_shared_experts": 1, "first_k_dense_replace": 1})";
constexpr const char* kLlama4 = R"({"model_type": "llama4_text", "hidden_size": 18, "num_hidden_layers": 2,
  "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11, "vocab_size": 61,
  "num_local_experts": 3, "intermediate_size_mlp": 13})";
constexpr const char* kMegatronMixtral = R"({"model_type": "mixtral", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 512,
  "num_local_experts": 4, "num_experts_per_tok": 2})";
constexpr const char* kMegatronQwen3Moe = R"({"model_type": "qwen3_moe", "hidden_size": 24, "num_hidden_layers": 2,
  "head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 36, "vocab_size": 512,
  "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "norm_topk_prob": true,
  "decoder_sparse_step": 2})";
constexpr const char* kMegatronQwen2Moe = R"({"model_type": "qwen2_moe", "hidden_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 36, "vocab_size": 512,
  "num_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14})";
// Latent attention and shared experts behind a layer that has none; an expert's rows are rounded up to eights.
constexpr const char* kDeepseek = R"({"model_type": "deepseek_v3", "hidden_size": 16, "num_hidden_layers": 3,
  "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 21, "vocab_size": 61, "q_lora_rank": 9,
  "kv_lora_rank": 7, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 4,
  "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 11, "first_k_dense_replace": 1,
  "n_group": 2, "topk_group": 1})";
constexpr const char* kQwen3Moe = R"({"model_type": "qwen3_moe", "hidden_size": 18, "head_dim": 6,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 13,
  "vocab_size": 61, "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 10, "norm_topk_prob": true})";
// Images of 56 by 56 pixels, four tokens in windows of one.
constexpr const char* kImages = R"({"model_type": "qwen2_5_vl", "image_token_id": 7, "text_config": {"hidden_size": 18,
  "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 35, "vocab_size": 61,
  "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 1]}}, "vision_config": {"hidden_size": 12, "depth": 2,
  "num_heads": 3, "intermediate_size": 10, "out_hidden_size": 18, "window_size": 28, "fullatt_block_indexes": [1],
  "in_channels": 1, "temporal_patch_size": 1}})";
constexpr const char* kTiles = R"({"model_type": "llama4", "image_token_index": 7, "text_config": {"hidden_size": 18,
  "num_hidden_layers": 1, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11,
  "vocab_size": 61, "num_local_experts": 3, "intermediate_size_mlp": 13}, "vision_config": {"hidden_size": 8,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 8, "patch_size": 2,
  "projector_input_dim": 10, "projector_output_dim": 10, "vision_output_dim": 10}})";
constexpr const char* kPooled = R"({"model_type": "gemma3", "image_token_index": 7, "mm_tokens_per_image": 4,
  "text_config": {"model_type": "gemma3_text", "hidden_size": 18, "num_hidden_layers": 2, "num_attention_heads": 3,
  "num_key_value_heads": 1, "head_dim": 6, "intermediate_size": 11, "vocab_size": 61, "sliding_window": 5,
  "sliding_window_pattern": 2}, "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 15,
  "intermediate_size": 11, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 16, "patch_size": 4,
  "vision_use_head": false}})";
constexpr const char* kPlain =
    R"({"layers": [{"linear": [6, 10]}, {"linear": [10, 7]}, {"linear": [7, 7]}, {"linear": [7, 5]}]})";

struct Shared {
  const char* name;
  const char* config;
  void (*set)(Recipe&);
};

constexpr void zero(Recipe& r, std::uint64_t stage) {
  r.zero = stage;
}

constexpr void lora(Recipe& r) {
  r.method = Method::lora;
  r.rank = 3;
}

constexpr void dora(Recipe& r) {
  lora(r);
  r.dora = true;
}

constexpr void qlora(Recipe& r, std::uint64_t fsdp) {
  r.method = Method::qlora;
  r.precision = Precision::bf16;
  r.prepare_kbit = false;
  r.rank = 3;
  r.fsdp = fsdp;
}

constexpr void offloaded(Recipe& r, std::uint64_t fsdp) {
  r.fsdp = fsdp;
  r.offload = Offload::params;
}

constexpr void native(Recipe& r) {
  r.stack = Stack::native;
  r.attention = Attention::sdpa;
}

constexpr void small_images(Recipe& r) {
  r.image_height = r.image_width = 56;
}

constexpr void tensor(Recipe& r, std::uint64_t tp) {
  r.stack = Stack::torchtitan;
  r.attention = Attention::sdpa;
  r.seq = 8;
  r.tp = tp;
  r.sequence_parallel = tp > 1;
}

constexpr void sharded(Recipe& r) {
  r.fsdp = 2;
  r.units = Units::titan;
}

constexpr void titan_stages(Recipe& r, Stack stack, std::uint64_t pp, std::uint64_t micro_batches) {
  tensor(r, 1);
  r.stack = stack;
  r.pp = pp;
  r.micro_batches = micro_batches;
  r.units = stack == Stack::torchtitan || stack == Stack::torchtitan_0_2_0 ? Units::titan : Units::layers;
}

constexpr void megatron(Recipe& r, std::uint64_t tp, std::uint64_t pp) {
  r.stack = Stack::megatron;
  r.precision = Precision::megatron_bf16;
  r.attention = Attention::sdpa;
  r.seq = 8;
  r.tp = tp;
  r.pp = pp;
  r.micro_batches = 3;
}

constexpr void context(Recipe& r, std::uint64_t cp, CpComm how = CpComm::automatic) {
  r.cp = cp;
  r.cp_comm_type = how;
}

constexpr void experts(Recipe& r, std::uint64_t tp, std::uint64_t pp, std::uint64_t ep, std::uint64_t etp) {
  megatron(r, tp, pp);
  r.sequence_parallel = tp > 1;
  r.ep = ep;
  r.etp = etp;
}

constexpr void titan_experts(Recipe& r, std::uint64_t ep, Checkpointing checkpointing = Checkpointing::none) {
  tensor(r, 1);
  sharded(r);
  r.ep = ep;
  r.checkpointing = checkpointing;
}

constexpr Shared kShared[] = {
    {"titan_experts_fsdp2", kDeepseek, [](Recipe& r) { titan_experts(r, 1); }},
    {"titan_ep2", kDeepseek, [](Recipe& r) { titan_experts(r, 2); }},
    {"titan_ep4", kDeepseek, [](Recipe& r) { titan_experts(r, 4); }},
    {"titan_ep2_recomputed", kDeepseek,
     [](Recipe& r) {
       titan_experts(r, 2, Checkpointing::full);
       r.grad_accum = 2;
     }},
    {"titan_ep2_selective", kDeepseek, [](Recipe& r) { titan_experts(r, 2, Checkpointing::selective); }},
    {"titan_ep2_kept_v0_2_0", kDeepseek,
     [](Recipe& r) {
       titan_experts(r, 2);
       r.stack = Stack::torchtitan_0_2_0;
       r.reshard_after_forward = false;
     }},
    {"titan_ep2_selective_v0_2_0", kDeepseek,
     [](Recipe& r) {
       titan_experts(r, 2, Checkpointing::selective);
       r.stack = Stack::torchtitan_0_2_0;
     }},
    {"titan_ep2_qwen3", kQwen3Moe,
     [](Recipe& r) {
       titan_experts(r, 2, Checkpointing::full);
       r.loss = Loss::chunked;
     }},
    {"titan_ep4_qwen3_selective_v0_2_0", kQwen3Moe,
     [](Recipe& r) {
       titan_experts(r, 4, Checkpointing::selective);
       r.stack = Stack::torchtitan_0_2_0;
     }},
    {"native_dp", kOdd, native},
    {"native_dp_accumulated", kOdd,
     [](Recipe& r) {
       native(r);
       r.grad_accum = 2;
     }},
    {"native_dp_lora_recomputed", kOdd,
     [](Recipe& r) {
       native(r);
       lora(r);
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_dp", kMegatronLlama, [](Recipe& r) { megatron(r, 1, 1); }},
    {"megatron_zero1", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       r.zero = 1;
     }},
    {"megatron_zero1_tp2_sequence", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.zero = 1;
     }},
    {"megatron_zero1_pp2_tied", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.zero = 1;
     }},
    {"megatron_tp2", kMegatronLlama, [](Recipe& r) { megatron(r, 2, 1); }},
    {"megatron_tp4", kMegatronLlama, [](Recipe& r) { megatron(r, 4, 1); }},
    {"megatron_tp4_gpt", kMegatronGpt, [](Recipe& r) { megatron(r, 4, 1); }},
    {"megatron_tp2_sequence", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
     }},
    {"megatron_tp4_sequence_gpt", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 4, 1);
       r.sequence_parallel = true;
     }},
    {"megatron_tp2_sequence_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_tp2_sequence_selective", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_pp2", kMegatronLlama, [](Recipe& r) { megatron(r, 1, 2); }},
    {"megatron_pp2_tied", kMegatronGpt, [](Recipe& r) { megatron(r, 1, 2); }},
    {"megatron_pp4", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 6;
     }},
    {"megatron_pp4_interleaved", kMegatronDeep,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 8;
       r.pipeline_schedule = PipelineSchedule::interleaved;
     }},
    {"megatron_pp4_tied_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_pp2_units_recomputed", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.checkpointing = Checkpointing::full;
       r.recompute_num_layers = 2;
     }},
    {"megatron_tp2_first_layers_recomputed", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::full;
       r.recompute_method = RecomputeMethod::block;
       r.recompute_num_layers = 3;
     }},
    {"megatron_pp2_tp2_sequence", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 2, 2);
       r.sequence_parallel = true;
     }},
    {"megatron_pp2_interleaved", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.micro_batches = 4;
       r.pipeline_schedule = PipelineSchedule::interleaved;
     }},
    {"megatron_pp2_interleaved_tied_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.micro_batches = 6;
       r.pipeline_schedule = PipelineSchedule::interleaved;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_cp2", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2);
     }},
    {"megatron_cp4", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4);
     }},
    {"megatron_cp4_flash_gpt", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4);
       r.batch = 2;
       r.attention = Attention::flash;
     }},
    {"megatron_cp2_zero1_gpt", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2);
       r.zero = 1;
     }},
    {"megatron_cp2_a2a", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2, CpComm::a2a);
     }},
    {"megatron_cp4_a2a_flash", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::a2a);
       r.batch = 2;
       r.attention = Attention::flash;
     }},
    {"megatron_cp4_a2a_p2p", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::a2a_p2p);
     }},
    {"megatron_cp4_a2a_p2p_flash_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::a2a_p2p);
       r.attention = Attention::flash;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_cp2_all_gather", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2, CpComm::all_gather);
     }},
    {"megatron_cp4_all_gather_flash", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::all_gather);
       r.batch = 2;
       r.attention = Attention::flash;
     }},
    {"megatron_cp2_tp2_sequence_selective", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       context(r, 2);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_cp2_pp2", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       context(r, 2);
       r.attention = Attention::flash;
     }},
    {"megatron_cp2_experts", kMegatronMixtral,
     [](Recipe& r) {
       experts(r, 1, 1, 2, 0);
       context(r, 2);
     }},
    {"cp2_fsdp2", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       sharded(r);
       context(r, 2);
     }},
    {"cp4_fsdp2", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       sharded(r);
       context(r, 4);
       r.batch = 2;
     }},
    {"cp4_fsdp2_rotated", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       sharded(r);
       context(r, 4, CpComm::p2p);
       r.grad_accum = 2;
     }},
    {"cp2_tp2_fsdp2_qwen3", kCuttableQwen3,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       context(r, 2);
       r.checkpointing = Checkpointing::full;
     }},
    {"cp2_fsdp2_selective_v0_1", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       r.stack = Stack::torchtitan_0_1;
       sharded(r);
       r.units = Units::layers;
       context(r, 2);
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_experts_in_one_place", kMegatronMixtral, [](Recipe& r) { megatron(r, 1, 1); }},
    {"megatron_ep2", kMegatronMixtral, [](Recipe& r) { experts(r, 1, 1, 2, 0); }},
    {"megatron_ep4", kMegatronMixtral, [](Recipe& r) { experts(r, 1, 1, 4, 0); }},
    {"megatron_ep2_zero1", kMegatronMixtral,
     [](Recipe& r) {
       experts(r, 1, 1, 2, 0);
       r.zero = 1;
     }},
    {"megatron_ep2_recomputed", kMegatronQwen3Moe,
     [](Recipe& r) {
       experts(r, 1, 1, 2, 0);
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_tp2_experts", kMegatronMixtral, [](Recipe& r) { experts(r, 2, 1, 1, 0); }},
    {"megatron_tp2_ep2_zero1", kMegatronQwen3Moe,
     [](Recipe& r) {
       experts(r, 2, 1, 2, 0);
       r.zero = 1;
     }},
    {"megatron_tp2_ep2_etp1", kMegatronQwen2Moe, [](Recipe& r) { experts(r, 2, 1, 2, 1); }},
    {"megatron_tp2_ep2_etp1_zero1", kMegatronMixtral,
     [](Recipe& r) {
       experts(r, 2, 1, 2, 1);
       r.zero = 1;
     }},
    {"megatron_etp2_of_data_ranks", kMegatronMixtral, [](Recipe& r) { experts(r, 1, 1, 1, 2); }},
    {"megatron_pp2_ep2", kMegatronQwen3Moe,
     [](Recipe& r) {
       experts(r, 1, 2, 2, 0);
       r.zero = 1;
     }},
    {"tp2", kCuttable, [](Recipe& r) { tensor(r, 2); }},
    {"tp4", kCuttable, [](Recipe& r) { tensor(r, 4); }},
    {"tp2_fsdp2", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
     }},
    {"tp2_fsdp2_recomputed", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"tp4_selective", kCuttable,
     [](Recipe& r) {
       tensor(r, 4);
       r.checkpointing = Checkpointing::selective;
     }},
    {"tp4_chunked", kCuttable,
     [](Recipe& r) {
       tensor(r, 4);
       r.loss = Loss::chunked;
     }},
    {"tp2_fsdp2_chunked", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       r.loss = Loss::chunked;
       r.checkpointing = Checkpointing::full;
     }},
    {"tp2_qwen3", kCuttableQwen3, [](Recipe& r) { tensor(r, 2); }},
    {"tp4_qwen3", kCuttableQwen3, [](Recipe& r) { tensor(r, 4); }},
    {"tp2_v0_1", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       r.stack = Stack::torchtitan_0_1;
       sharded(r);
       r.units = Units::layers;
     }},
    {"ddp_images", kImages, small_images},
    {"fsdp2_images", kImages,
     [](Recipe& r) {
       small_images(r);
       r.fsdp = 2;
     }},
    {"fsdp2_images_lora_recomputed", kImages,
     [](Recipe& r) {
       small_images(r);
       lora(r);
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_tiles", kTiles, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_pooled", kPooled,
     [](Recipe& r) {
       r.fsdp = 2;
       r.attention = Attention::eager;
     }},
    {"zero2_images", kImages,
     [](Recipe& r) {
       small_images(r);
       zero(r, 2);
     }},
    {"zero1_images_lora", kImages,
     [](Recipe& r) {
       small_images(r);
       lora(r);
       zero(r, 1);
     }},
    {"ddp_lora", kOdd, lora},
    {"fsdp2_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 2;
     }},
    {"fsdp2_qlora", kOdd, [](Recipe& r) { qlora(r, 2); }},
    {"fsdp2_qlora_recomputed", kOdd,
     [](Recipe& r) {
       qlora(r, 2);
       r.double_quant = false;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp1_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
     }},
    {"fsdp1_lora_kept_accumulated", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.reshard_after_forward = false;
       r.grad_accum = 3;
     }},
    {"fsdp1_lora_recomputed", tiny::kQwen2,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp1_lora_reentrant", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
       r.grad_accum = 2;
     }},
    {"fsdp1_qlora", kOdd, [](Recipe& r) { qlora(r, 1); }},
    {"fsdp1_qlora_reentrant", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"fsdp1_qlora_recomputed_accumulated", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero3_qlora", kOdd,
     [](Recipe& r) {
       qlora(r, 0);
       zero(r, 3);
     }},
    {"zero3_qlora_recomputed_accumulated", kOdd,
     [](Recipe& r) {
       qlora(r, 0);
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero2_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 2);
     }},
    {"zero3_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 3);
     }},
    {"ddp", kOdd, [](Recipe&) {}},
    {"ddp_bucket_view", kOdd, [](Recipe& r) { r.ddp_bucket_view = true; }},
    {"ddp_plain_sgd", kPlain, [](Recipe& r) { r.optimizer = Optimizer::sgd_momentum; }},
    {"ddp_accumulated", tiny::kTied, [](Recipe& r) { r.grad_accum = 2; }},
    {"ddp_recomputed", tiny::kQwen2, [](Recipe& r) { r.checkpointing = Checkpointing::full; }},
    {"fsdp2", kOdd, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_tied", tiny::kTied, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_kept", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.reshard_after_forward = false;
     }},
    {"fsdp2_recomputed", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_accumulated", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.grad_accum = 2;
     }},
    {"fsdp2_experts", kExperts, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_torchtitan", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.fsdp = 2;
       r.units = Units::titan;
     }},
    {"fsdp2_torchtitan_chunked", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.loss = Loss::chunked;
       r.seq = 8;
       sharded(r);
     }},
    {"fsdp2_torchtitan_chunked_accumulated", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.loss = Loss::chunked;
       r.seq = 8;
       r.grad_accum = 2;
       r.checkpointing = Checkpointing::full;
       sharded(r);
     }},
    {"fsdp1", kOdd, [](Recipe& r) { r.fsdp = 1; }},
    {"fsdp1_kept", tiny::kQwen2,
     [](Recipe& r) {
       r.fsdp = 1;
       r.reshard_after_forward = false;
     }},
    {"fsdp1_reentrant", kOdd,
     [](Recipe& r) {
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"fsdp1_accumulated", kOdd,
     [](Recipe& r) {
       r.fsdp = 1;
       r.grad_accum = 2;
     }},
    {"fsdp2_dora", kOdd,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 2;
     }},
    {"fsdp1_dora", kOdd,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 1;
     }},
    {"fsdp1_dora_recomputed_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"fsdp1_dora_reentrant", kOdd,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"fsdp1_qdora", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.dora = true;
       r.offload = Offload::params;
     }},
    {"zero3_dora", kOdd,
     [](Recipe& r) {
       dora(r);
       zero(r, 3);
     }},
    {"zero3_dora_nothing_persists", tiny::kQwen2,
     [](Recipe& r) {
       dora(r);
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero3_dora_reentrant", kOdd,
     [](Recipe& r) {
       dora(r);
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"zero3_qdora", kOdd,
     [](Recipe& r) {
       qlora(r, 0);
       r.dora = true;
       zero(r, 3);
     }},
    {"fsdp1_offloaded", kOdd, [](Recipe& r) { offloaded(r, 1); }},
    {"fsdp1_offloaded_kept_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       offloaded(r, 1);
       r.reshard_after_forward = false;
       r.grad_accum = 2;
       r.optimizer = Optimizer::adamw_foreach;
     }},
    {"fsdp1_offloaded_qlora_reentrant", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.offload = Offload::params;
       r.checkpointing = Checkpointing::full_reentrant;
       r.grad_accum = 2;
     }},
    {"fsdp1_offloaded_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       offloaded(r, 1);
       r.optimizer = Optimizer::adamw_forloop;
     }},
    {"fsdp2_offloaded", kOdd, [](Recipe& r) { offloaded(r, 2); }},
    {"fsdp2_offloaded_accumulated", tiny::kTied,
     [](Recipe& r) {
       offloaded(r, 2);
       r.grad_accum = 2;
       r.optimizer = Optimizer::sgd_momentum;
     }},
    {"fsdp2_offloaded_qlora", kOdd,
     [](Recipe& r) {
       qlora(r, 2);
       r.offload = Offload::params;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_offloaded_torchtitan", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       offloaded(r, 2);
       r.units = Units::titan;
     }},
    {"tp2_fsdp2_offloaded", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       r.offload = Offload::params;
     }},
    {"zero1", kOdd, [](Recipe& r) { zero(r, 1); }},
    {"torchtitan_pp2", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan, 2, 3); }},
    {"torchtitan_pp2_qwen3_recomputed", kTitanQwen3,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_2_0, 2, 4);
       r.batch = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"torchtitan_pp4", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan_0_1, 4, 5); }},
    {"torchtitan_pp2_one_micro_batch", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan, 2, 1); }},
    {"torchtitan_pp2_tp2", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan, 2, 3);
       r.tp = 2;
       r.sequence_parallel = true;
     }},
    {"torchtitan_pp2_sharded", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan, 2, 3);
       r.fsdp = 2;
     }},
    {"torchtitan_pp2_sharded_in_the_root", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_1, 2, 2);
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"torchtitan_pp2_interleaved", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_1, 2, 4);
       r.pipeline_schedule = PipelineSchedule::interleaved;
     }},
    {"torchtitan_pp2_interleaved_sharded", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_0_2, 2, 6);
       r.pipeline_schedule = PipelineSchedule::interleaved;
       r.fsdp = 2;
     }},
    {"zero1_overlapping", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.overlap_comm = OverlapComm::on;
     }},
    {"zero1_accumulated", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.grad_accum = 2;
     }},
    {"zero2", kOdd, [](Recipe& r) { zero(r, 2); }},
    {"zero2_small_buckets", kOdd,
     [](Recipe& r) {
       zero(r, 2);
       r.reduce_bucket_size = 700;
     }},
    {"zero2_all_reduce", kOdd,
     [](Recipe& r) {
       zero(r, 2);
       r.reduce_scatter = false;
     }},
    {"zero2_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       zero(r, 2);
       r.grad_accum = 3;
     }},
    {"zero3", kOdd, [](Recipe& r) { zero(r, 3); }},
    {"zero3_nothing_persists", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
     }},
    {"zero3_all_reduce", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.reduce_scatter = false;
     }},
    {"zero3_experts", kExperts, [](Recipe& r) { zero(r, 3); }},
    {"zero3_experts_recomputed", kExperts,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
     }},
    {"zero3_experts_with_sinks", kGptOss,
     [](Recipe& r) {
       zero(r, 3);
       r.attention = Attention::eager;
       r.param_persistence_threshold = 1;
     }},
    {"zero3_experts_read_router", kDeepseek2,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero3_every_expert", kLlama4,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"zero3_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       zero(r, 3);
       r.grad_accum = 2;
     }},
    {"zero3_masters_from_copies", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.sub_group_size = 1000;
       r.deepspeed = DeepSpeed::v0_18_2;
     }},
    {"zero3_lora_masters_from_copies", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       lora(r);
       r.deepspeed = DeepSpeed::v0_18_2;
     }},
    {"zero3_sub_groups", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.sub_group_size = 1000;
     }},
};

struct Case {
  Shared shared;
  std::uint64_t world;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.shared.name << " on " << c.world;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Shared& shared : kShared) {
    Recipe recipe;
    shared.set(recipe);
    for (const std::uint64_t world : {2u, 4u}) {
      const std::uint64_t model = recipe.tp * recipe.pp * recipe.cp;
      const std::uint64_t of_experts = recipe.ep * expert_tensor_ranks(recipe) * recipe.pp;
      const bool shards_nothing = recipe.fsdp != 0 && world == recipe.tp * recipe.pp;
      const bool whole_copies = is_torchtitan(recipe.stack) && recipe.pp != 1 && recipe.fsdp == 0 && world != model;
      if (world % model != 0 || world % of_experts != 0 || shards_nothing || whole_copies) continue;
      all.push_back({shared, world});
    }
  }
  return all;
}

Trace traced(const char* json, const Recipe& recipe, std::uint64_t rank, bool operands = true) {
  const Result<ModelConfig> config = read_model_config(json);
  EXPECT_TRUE(config.ok());
  TraceOptions options;
  options.steps = kSteps;
  options.operands = operands;
  options.every_pass = true;
  options.weights = DType::f64;
  options.adamw.lr = 1e-2;
  options.rank = rank;
  Result<Trace> trace = trace_step(config.value(), recipe, options);
  EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().where + ": " + trace.problem().expected);
  if (!trace.ok()) return {};
  widen(trace.value());
  return std::move(trace.value());
}

HostRun run(const Trace& trace, Communicator* ranks) {
  HostRunOptions options;
  options.executor.ranks = ranks;
  options.executor.poison = true;
  options.keep_weights = true;
  return run_on_host(trace, {.allocator = {}, .record_addresses = true}, options);
}

// --- what a rank says: its losses, then a line of each parameter's part
// ------------------------------------------------

void say(std::ostream& out, const std::vector<double>& values) {
  out << values.size();
  out << std::hexfloat;
  for (const double value : values)
    out << ' ' << value;
  out << '\n';
}

// Codes of a sharded 4-bit weight stand in numbers that are none, and no one trains them.
bool is_told(const Recipe& recipe, const std::string& name) {
  return recipe.method != Method::qlora || name.find("lora_") != std::string::npos;
}

std::string account(const HostRun& run, const Replay& predicted, const Recipe& recipe) {
  if (run.failure) return "failed: " + run.failure->what;
  if (!identical(predicted, run.replay)) return "failed: another trace than was predicted";
  std::ostringstream out;
  say(out, run.losses);
  for (const NamedTensor& weight : run.weights) {
    if (!is_told(recipe, weight.name)) continue;
    const TensorCut& cut = weight.cut;
    out << weight.name << ' ' << weight.first << ' ' << cut.piece << ' ' << cut.stride << ' ' << cut.offset << ' ';
    say(out, weight.values);
  }
  return out.str();
}

std::vector<double> heard(std::istream& in) {
  std::size_t count = 0;
  in >> count;
  std::vector<double> values(count);
  for (double& value : values) {
    std::string text;
    in >> text;  // istream does not read hexfloat (LWG 2381)
    value = std::strtod(text.c_str(), nullptr);
  }
  return values;
}

struct Trained {
  std::vector<double> losses;  // of the ranks that have any: the sum, then the mean
  double with_losses = 0;
  std::map<std::string, std::vector<double>> weights;  // whole
};

// Ranks that have the same part have the same numbers in it.
void put_part(std::istream& in, const TensorCut& cut, std::size_t first, std::vector<double>& whole) {
  const std::vector<double> part = heard(in);
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto place = static_cast<std::size_t>(cut.place(first + i));
    whole.resize(std::max(whole.size(), place + 1), std::nan(""));
    if (std::isnan(whole[place])) whole[place] = part[i];
    EXPECT_NEAR(part[i], whole[place], kTolerance);
  }
}

void hear(const std::string& text, Trained& trained) {
  std::istringstream in(text);
  const std::vector<double> losses = heard(in);
  if (!losses.empty()) {
    ++trained.with_losses;
    trained.losses.resize(losses.size());
  }
  for (std::size_t i = 0; i < losses.size(); ++i)
    trained.losses[i] += losses[i];
  std::string name;
  std::size_t first = 0;
  TensorCut cut;
  while (in >> name >> first >> cut.piece >> cut.stride >> cut.offset)
    put_part(in, cut, first, trained.weights[name]);
}

// Of each `each` values in turn.
std::vector<double> means_of(const std::vector<double>& values, std::uint64_t each) {
  std::vector<double> means(values.size() / each, 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    means[i / each] += values[i] / static_cast<double>(each);
  return means;
}

// What is added to all scores of a query is lost in its softmax: a bias of keys has no gradient but rounding. That is
// some 1e-17, of which AdamW makes a step of 1e-9 of the learning rate (eps is 1e-8), and it differs from build to
// build.
double tolerance_of(const std::string& what) {
  return what.ends_with("k_proj.bias") || what.ends_with("linear_qkv.bias") ? 1e-9 : kTolerance;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double scale = std::max(1.0, std::fabs(expected[i]));
    ASSERT_TRUE(std::fabs(got[i] - expected[i]) <= tolerance_of(what) * scale)
        << what << "[" << i << "]: " << got[i] << " instead of " << expected[i];
  }
}

// --- tests
// ----------------------------------------------------------------------------------------------------------------

class RanksTrain : public testing::TestWithParam<Case> {
 protected:
  static Recipe recipe() {
    Recipe r;
    r.precision = Precision::fp32;
    r.attention = Attention::math;
    r.batch = 1;
    r.seq = 6;
    GetParam().shared.set(r);
    if (r.zero != 0 && r.stack != Stack::megatron) r.precision = Precision::bf16;
    return r;
  }
};
INSTANTIATE_TEST_SUITE_P(All, RanksTrain, testing::ValuesIn(cases()), [](const auto& test) {
  return std::string(test.param.shared.name) + "_on_" + std::to_string(test.param.world);
});

TEST_P(RanksTrain, AsOneProcessWithAllTheirData) {
  const auto& [shared, world] = GetParam();
  Recipe one = recipe();
  one.batch *= world / (one.tp * one.pp * one.cp);
  const std::uint64_t passes = one.stack == Stack::megatron ? 1 : one.micro_batches;  // Megatron's has them alone, too
  one.batch *= passes;
  if (passes != 1) one.micro_batches = 1;
  one.tp = one.pp = one.ep = one.cp = 1;
  one.etp = 0;
  one.sequence_parallel = false;
  one.pipeline_schedule = PipelineSchedule::one_f_one_b;
  one.fsdp = one.zero = 0;
  one.offload = Offload::none;
  if (one.stack != Stack::megatron && one.method != Method::qlora) one.precision = Precision::fp32;
  const Recipe plain;
  one.reduce_bucket_size = plain.reduce_bucket_size;
  one.param_persistence_threshold = plain.param_persistence_threshold;
  one.sub_group_size = plain.sub_group_size;
  one.overlap_comm = plain.overlap_comm;
  one.deepspeed = plain.deepspeed;
  one.reduce_scatter = plain.reduce_scatter;
  one.units = plain.units;
  one.reshard_after_forward = plain.reshard_after_forward;
  one.ddp_bucket_view = false;
  const HostRun expected = run(traced(shared.config, one, 0), nullptr);
  ASSERT_FALSE(expected.failure) << expected.failure->what;
  ASSERT_LT(expected.losses.back(), expected.losses.front());

  Recipe many = recipe();
  many.dp = world / (many.tp * many.pp * many.cp);
  const auto all = forked::as_ranks(world, [&](Communicator& ranks) {
    const Replay predicted =
        replay(traced(shared.config, many, ranks.rank(), false), {.allocator = {}, .record_addresses = true});
    return account(run(traced(shared.config, many, ranks.rank()), &ranks), predicted, many);
  });
  Trained trained;
  for (const forked::Ended& rank : all) {
    ASSERT_EQ(rank.status, 0);
    ASSERT_FALSE(rank.said.starts_with("failed") || rank.said.starts_with("no meeting")) << rank.said;
    hear(rank.said, trained);
  }
  for (double& loss : trained.losses)
    loss /= trained.with_losses;
  trained.losses = means_of(trained.losses, passes);
  expect_near(trained.losses, expected.losses, "loss");
  std::size_t told = 0;
  for (const NamedTensor& weight : expected.weights) {
    if (!is_told(many, weight.name)) continue;
    ++told;
    expect_near(trained.weights[weight.name], weight.values, weight.name);
  }
  EXPECT_EQ(trained.weights.size(), told);
}

}  // namespace
}  // namespace ledger
