#include "core/training/support.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/image_grid.h"
#include "core/models/names.h"
#include "core/models/parameter_adapter.h"
#include "core/training/megatron_step.h"
#include "core/training/refusal.h"

namespace ledger {
namespace {

bool names_no_module(const ModelConfig& c, const Recipe& r) {
  if (c.architecture == Architecture::plain || r.method == Method::full) return false;
  const std::vector<std::string_view> linears = linear_names(c, r.stack);
  return std::any_of(r.targets.begin(), r.targets.end(), [&](const std::string& name) {
    return name != "all-linear" && std::find(linears.begin(), linears.end(), name) == linears.end();
  });
}

bool targets(const Recipe& r, std::string_view name) {
  return std::find(r.targets.begin(), r.targets.end(), name) != r.targets.end();
}

// Where experts or routers get adapters, PEFT wraps parameters, not layers.
bool adapts_experts(const ModelConfig& c, const Recipe& r) {
  const ExpertTargets* e = expert_targets(c);
  if (e == nullptr || r.method == Method::full) return false;
  return targets(r, "all-linear") || targets(r, e->router) || targets(r, e->gate) || targets(r, e->down);
}

bool sets_deepspeed_keys(const Recipe& r) {
  const Recipe d;
  return r.reduce_bucket_size != d.reduce_bucket_size || r.prefetch_bucket_size != d.prefetch_bucket_size ||
         r.param_persistence_threshold != d.param_persistence_threshold ||
         r.max_live_parameters != d.max_live_parameters || r.max_reuse_distance != d.max_reuse_distance ||
         r.sub_group_size != d.sub_group_size || r.overlap_comm != d.overlap_comm || r.deepspeed != d.deepspeed ||
         r.reduce_scatter != d.reduce_scatter;
}

bool sees_images(const ModelConfig& c) {
  return c.architecture == Architecture::image_text;
}

// LLaVA's features come from a layer before the last, unless nothing of the tower is trained.
bool leaves_gradients_out(const ModelConfig& c, const Recipe& r) {
  return c.model_type == "llava" && !r.freeze_vision_tower;
}

// Families whose norms, rotary embedding and MLP Liger-Kernel replaces by the modules of trace/liger_ops.h, as its
// transformers/monkey_patch.py has it. Others get other kernels (mixtures of experts) or none.
constexpr std::string_view kLigerFamilies[] = {"llama", "mistral", "qwen2", "qwen3",  "granite",    "smollm3",
                                               "phi3",  "olmo2",   "gemma", "gemma2", "gemma3_text"};

bool liger_knows(const ModelConfig& c, const Recipe& r) {
  const bool stack = r.stack == Stack::hf || r.stack == Stack::hf_4;
  if (c.rotary_dim != 0) return false;  // the kernel turns whole heads
  if (c.act != Act::silu && c.act != Act::gelu_tanh) return false;
  return stack &&
         std::find(std::begin(kLigerFamilies), std::end(kLigerFamilies), c.model_type) != std::end(kLigerFamilies);
}

// The output layer is not the last thing before the loss, or has a bias.
bool logits_are_changed(const ModelConfig& c) {
  return c.logits_divisor != 0 || c.logits_multiplier != 0 || c.logits_softcap != 0 || c.style.head_bias;
}

constexpr Refusal kOnlyWhileGenerating[] = {
    {"weights", "only_while_generating", [](const ModelConfig&, const Recipe& r) { return r.weights == Weights::nf4; }},
    {"weights", "int8_base_wants_lora",
     [](const ModelConfig&, const Recipe& r) {
       return r.weights == Weights::int8 && (r.method != Method::lora || r.dora || r.precision != Precision::bf16);
     }},
    {"new_tokens", "only_while_generating",
     [](const ModelConfig&, const Recipe& r) { return r.new_tokens != Recipe{}.new_tokens; }},
    {"kv_cache", "only_while_generating",
     [](const ModelConfig&, const Recipe& r) { return r.kv_cache != KvCacheKind::dynamic; }},
    {"prefill_logits", "only_while_generating",
     [](const ModelConfig&, const Recipe& r) { return r.prefill_logits != PrefillLogits::last; }},
    {"no_grad", "only_while_generating", [](const ModelConfig&, const Recipe& r) { return !r.no_grad; }},
};

// First what no framework can run, then what is not modelled yet.
constexpr Refusal kRefusals[] = {
    {"method", "adapters_need_a_decoder",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::plain && r.method != Method::full;
     }},
    {"targets", "router_takes_no_adapter",
     [](const ModelConfig& c, const Recipe& r) {
       const bool router = c.style.routing == Routing::every_expert && c.moe.experts != 0;
       const ExpertTargets* e = expert_targets(c);
       const bool refused = router || (e != nullptr && e->router[0] == '\0');
       return refused && r.method != Method::full &&
              (targets(r, "all-linear") || targets(r, router ? "router" : "gate"));
     }},
    // DeepSeek V2's router is a linear layer whose weight the model takes itself: bitsandbytes would have packed it.
    // Llama 4's is a kind of linear layer, in whose place bitsandbytes would put one that returns no scores.
    {"method", "router_cannot_be_quantised",
     [](const ModelConfig& c, const Recipe& r) {
       const bool linear = c.style.routing == Routing::grouped_softmax || c.style.routing == Routing::every_expert;
       return c.moe.experts != 0 && linear && (r.method == Method::qlora || r.weights == Weights::int8);
     }},
    {"method", "encoder_base_not_quantised",
     [](const ModelConfig& c, const Recipe& r) {
       const bool encoder = c.architecture == Architecture::bert || c.architecture == Architecture::vit;
       return encoder && (r.method == Method::qlora || r.weights == Weights::int8);
     }},
    {"image_height", "image_size_is_fixed",
     [](const ModelConfig& c, const Recipe& r) {
       const bool said = r.image_height != 0 || r.image_width != 0;
       return said && !(sees_images(c) && (c.vision.any_size() || c.vision.tiled));
     }},
    {"image_height", "image_too_narrow",
     [](const ModelConfig& c, const Recipe& r) { return sees_images(c) && !has_possible_sides(c.vision, r); }},
    // Its layers are called with the hidden states by name, which a reentrant checkpoint does not see.
    {"checkpointing", "tower_wants_non_reentrant_checkpointing",
     [](const ModelConfig& c, const Recipe& r) {
       const bool reentrant =
           r.checkpointing == Checkpointing::full_reentrant || r.checkpointing == Checkpointing::offload;
       return sees_images(c) && c.vision.tiled && reentrant;
     }},
    {"images", "images_do_not_fit", [](const ModelConfig& c, const Recipe& r) { return least_sequence(c, r) > r.seq; }},
    // Gemma 3's masks let an image's tokens see each other, which is_causal cannot say.
    {"attention", "image_mask_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool forced = r.attention == Attention::math || r.attention == Attention::cudnn;
       return sees_images(c) && c.model_type == "gemma3" && forced;
     }},
    {"targets", "convolution_adapter_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return c.vision.any_size() && r.method != Method::full && targets(r, "proj");
     }},
    {"targets", "target_names_no_module", names_no_module},
    {"targets", "expert_targets_go_together",
     [](const ModelConfig& c, const Recipe& r) {
       const ExpertTargets* e = expert_targets(c);
       return e != nullptr && r.method != Method::full && targets(r, e->gate) != targets(r, e->up);
     }},
    {"dora", "expert_adapters_are_plain",
     [](const ModelConfig& c, const Recipe& r) { return r.dora && adapts_experts(c, r); }},
    {"lora_dropout", "expert_adapters_are_plain",
     [](const ModelConfig& c, const Recipe& r) { return r.lora_dropout != 0 && adapts_experts(c, r); }},
    // BLOOM's classes know the written-out attention only, gpt-oss's and GPT-J's beside it flash kernels called in ways
    // of their own; Falcon's written-out attention is not built. InternLM2 has a class for flash attention.
    {"attention", "family_attention_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool own_flash = c.style.projections == Projections::grouped && r.attention == Attention::flash;
       if (writes_attention_out(c))
         return r.attention != Attention::sdpa && r.attention != Attention::eager && !own_flash;
       // No public limits of cuDNN's graph say what it does with values narrower than queries.
       if (c.style.projections == Projections::latent && r.attention == Attention::cudnn) return true;
       return c.style.projections == Projections::falcon && r.attention == Attention::eager;
     }},
    {"decoder_seq", "decoder_seq_needs_an_encoder",
     [](const ModelConfig& c, const Recipe& r) { return r.decoder_seq != 0 && c.architecture != Architecture::t5; }},
    // Reentrant checkpointing as modelled saves and differentiates one tensor; T5's layers take the encoder's states
    // and two biases beside it. Selective checkpointing refuses results that are changed in place
    // (torch/utils/checkpoint.py, _VersionWrapper), as T5's scores are.
    {"checkpointing", "encoder_decoder_checkpoints_in_full",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::t5 && r.checkpointing != Checkpointing::none &&
              r.checkpointing != Checkpointing::full;
     }},
    // T5 moves its labels, not its logits; in fp16 its layers clamp what has become infinite.
    {"loss", "loss_not_modelled",
     [](const ModelConfig& c, const Recipe& r) { return c.architecture == Architecture::t5 && r.loss != Loss::full; }},
    {"precision", "precision_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::t5 && r.zero != 0 && r.precision == Precision::amp_fp16;
     }},
    {"checkpointing", "selective_experts_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return c.moe.experts != 0 && r.checkpointing == Checkpointing::selective && !is_torchtitan(r.stack);
     }},
    {"seq", "seq_beyond_positions",
     [](const ModelConfig& c, const Recipe& r) {
       const bool stored = c.style.position == Position::learned || c.style.position == Position::table;
       const std::uint64_t first = c.model_type == "roberta" ? 2 : 0;  // RoBERTa's positions begin after its padding
       return stored && plus(r.seq, first) > c.max_position_embeddings;
     }},
    {"dora", "dora_needs_an_adapter",
     [](const ModelConfig&, const Recipe& r) { return r.dora && r.method == Method::full; }},
    {"autocast", "autocast_needs_16_bit_weights",
     [](const ModelConfig&, const Recipe& r) { return r.autocast && r.precision != Precision::bf16; }},
    {"attention", "flash_needs_16_bits",
     [](const ModelConfig& c, const Recipe& r) {
       const bool wants_16_bits = r.attention == Attention::flash || r.attention == Attention::cudnn;
       return c.architecture != Architecture::plain && wants_16_bits && fp32_stream(r) && !r.autocast;
     }},
    {"attention", "efficient_needs_equal_heads",
     [](const ModelConfig& c, const Recipe& r) {
       const bool repeated = r.stack == Stack::hf_4 || c.style.projections == Projections::grouped;
       return c.architecture != Architecture::plain && r.attention == Attention::efficient && !repeated &&
              c.num_attention_heads != c.num_key_value_heads;
     }},
    {"checkpointing", "plain_stack_has_no_layers_to_checkpoint",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::plain && r.checkpointing != Checkpointing::none;
     }},
    {"attention", "sliding_window_mask_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       // transformers masking_utils.py: beyond a window's length sdpa gets a mask, and with it repeated keys and
       // values.
       const bool forced = r.attention == Attention::math || r.attention == Attention::cudnn;
       return takes_window_mask(c, r) && (forced || (r.stack == Stack::hf_4 && r.attention == Attention::sdpa));
     }},
    {"attention", "flash_has_no_chunks",
     [](const ModelConfig& c, const Recipe& r) {
       return c.attention_chunk != 0 && r.attention == Attention::flash && r.seq > c.attention_chunk;
     }},
    {"attention", "sliding_window_mask_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool forced = r.attention == Attention::math || r.attention == Attention::cudnn;
       return c.attention_chunk != 0 && forced && r.seq >= c.attention_chunk;
     }},
    {"loss", "plain_stack_has_a_loss_of_its_own",
     [](const ModelConfig& c, const Recipe& r) {
       return c.architecture == Architecture::plain && r.loss != Loss::full;
     }},
    {"seq", "loss_needs_two_tokens",
     [](const ModelConfig&, const Recipe& r) { return r.seq < 2 && (r.loss != Loss::full || r.stack == Stack::hf_4); }},
    {"stack", "old_modules_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return r.stack == Stack::hf_4 && !is_like_llama(c) && c.architecture != Architecture::plain;
     }},
    {"loss", "changed_logits_not_modelled",
     [](const ModelConfig& c, const Recipe& r) { return r.loss != Loss::full && logits_are_changed(c); }},
    {"stack", "stack_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool of_decoders =
           r.stack == Stack::hf_4 || r.stack == Stack::torchtune || r.stack == Stack::native || is_torchtitan(r.stack);
       return r.stack != Stack::hf && !(of_decoders && c.architecture != Architecture::plain);
     }},
    {"precision", "precision_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       const bool base =
           r.precision == Precision::bf16 ||
           (r.method != Method::qlora && (r.precision == Precision::amp_bf16 || r.precision == Precision::amp_fp16 ||
                                          r.precision == Precision::fp32));
       return !base;
     }},
    {"loss", "loss_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.loss >= Loss::vocab_parallel; }},
    {"liger", "liger_not_modelled",
     [](const ModelConfig& c, const Recipe& r) { return r.liger && !liger_knows(c, r); }},
    // Its kernels write gradients over what selective checkpointing keeps.
    {"checkpointing", "liger_writes_over_what_is_kept",
     [](const ModelConfig&, const Recipe& r) {
       return r.liger && r.checkpointing == Checkpointing::selective;
     }},
    {"compile", "compile_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       return r.compile && r.stack != Stack::torchtune && !is_torchtitan(r.stack);
     }},
    {"float8", "float8_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       const bool uncompiled = !r.compile && (r.tp != 1 || r.precision == Precision::amp_bf16);
       return r.float8 && (uncompiled || !is_torchtitan(r.stack));
     }},
    {"float8_all_gather", "float8_all_gather_wants_compiled_float8",
     [](const ModelConfig&, const Recipe& r) {
       return r.float8_all_gather && !(r.float8 && r.compile && r.fsdp == 2 && r.param_dtype == ShardDtype::bf16);
     }},
    {"fsdp", "fsdp_needs_ranks",
     [](const ModelConfig&, const Recipe& r) { return r.fsdp != 0 && times(r.dp, r.cp) < 2; }},
    {"fsdp", "parallelism_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return r.fsdp != 0 && (c.architecture == Architecture::plain || c.architecture == Architecture::t5);
     }},
    // Parameters of layers that run for nobody have no gradient, for which DDP waits and FSDP and DeepSpeed have rules.
    {"dp", "image_parallelism_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return leaves_gradients_out(c, r) && r.dp > 1 && r.fsdp == 0 && r.zero == 0;
     }},
    {"fsdp", "image_parallelism_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       const bool in_units = r.fsdp == 2 && r.units == Units::layers && !leaves_gradients_out(c, r);
       return !c.vision.model_type.empty() && r.fsdp != 0 && !in_units;
     }},
    {"zero", "image_parallelism_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return r.zero != 0 && (leaves_gradients_out(c, r) || (r.zero == 3 && !c.vision.model_type.empty()));
     }},
    // bitsandbytes' quant_storage: FSDP1 flattens weights of one dtype only, and a cast would change packed codes.
    {"param_dtype", "sharded_4_bit_wants_one_dtype",
     [](const ModelConfig&, const Recipe& r) {
       return r.fsdp != 0 && r.method == Method::qlora && r.param_dtype != ShardDtype::bf16;
     }},
    {"weights", "sharded_4_bit_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.fsdp != 0 && r.weights == Weights::int8; }},
    // ParamWrapper reads lora_A.weight of a unit that only lora_A's own call would gather: its memory is not there.
    {"method", "fsdp1_cannot_adapt_experts",
     [](const ModelConfig& c, const Recipe& r) {
       return r.fsdp == 1 && r.method != Method::full && adapts_experts(c, r);
     }},
    {"units", "titan_units_are_fsdp2s",
     [](const ModelConfig&, const Recipe& r) { return r.fsdp == 1 && r.units == Units::titan; }},
    {"fsdp_activation_checkpointing", "fsdp1_checkpoints_decoder_layers",
     [](const ModelConfig& c, const Recipe& r) {
       const bool decoder = c.architecture == Architecture::llama && (r.stack == Stack::hf || r.stack == Stack::hf_4);
       return r.fsdp_activation_checkpointing &&
              (r.fsdp != 1 || r.checkpointing == Checkpointing::none || !decoder);
     }},
    {"precision", "fsdp_has_a_mixed_precision_of_its_own",
     [](const ModelConfig&, const Recipe& r) {
       return r.fsdp != 0 && ((r.precision != Precision::bf16 && r.precision != Precision::fp32) || r.autocast);
     }},
    {"checkpointing", "fsdp_needs_non_reentrant_checkpointing",
     [](const ModelConfig&, const Recipe& r) {
       const bool reentrant = r.checkpointing == Checkpointing::full_reentrant && r.fsdp != 1;
       return r.fsdp != 0 && (reentrant || r.checkpointing == Checkpointing::offload);
     }},
    {"units", "titan_units_share_no_weight",
     [](const ModelConfig& c, const Recipe& r) {
       return r.fsdp != 0 && r.units == Units::titan && c.tie_word_embeddings;
     }},
    {"loss", "titan_units_need_the_head_called",
     [](const ModelConfig&, const Recipe& r) {
       return r.fsdp != 0 && r.units == Units::titan && r.loss != Loss::full && !is_torchtitan(r.stack);
     }},
    {"optimizer", "optimizer_not_for_shards",
     [](const ModelConfig&, const Recipe& r) {
       const bool shards = r.fsdp != 0 || r.zero != 0;
       return shards && !plain_adamw(r) && r.optimizer != Optimizer::sgd && r.optimizer != Optimizer::sgd_momentum;
     }},
    {"ddp_bucket_view", "ddp_needs_ranks",
     [](const ModelConfig&, const Recipe& r) { return r.ddp_bucket_view && (r.dp < 2 || r.fsdp != 0 || r.zero != 0); }},
    {"tp", "parallelism_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.tp != 1 && !is_torchtitan(r.stack); }},
    {"pp", "parallelism_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.pp != 1 && !is_torchtitan(r.stack); }},
    {"cp", "parallelism_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.cp != 1 && !is_torchtitan(r.stack); }},
    {"ep", "parallelism_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.ep != 1 && !is_torchtitan(r.stack); }},
    {"recompute_method", "recomputed_layers_want_full",
     [](const ModelConfig&, const Recipe& r) { return sets_recompute(r); }},
    {"pp", "stages_of_unequal_layers", [](const ModelConfig&, const Recipe& r) { return sets_stages(r); }},
    {"pipeline_schedule", "chunks_cut_interleaved_stages",
     [](const ModelConfig&, const Recipe& r) { return sets_chunks(r); }},
    {"transformer_impl", "local_modules_are_megatrons",
     [](const ModelConfig&, const Recipe& r) { return r.transformer_impl != TransformerImpl::transformer_engine; }},
    {"etp", "parallelism_not_modelled", [](const ModelConfig&, const Recipe& r) { return r.etp != 0; }},
    {"zero", "deepspeed_keys_want_a_stage",
     [](const ModelConfig&, const Recipe& r) { return r.zero == 0 && sets_deepspeed_keys(r); }},
    {"zero", "zero_or_fsdp", [](const ModelConfig&, const Recipe& r) { return r.zero != 0 && r.fsdp != 0; }},
    {"zero", "zero_needs_ranks",
     [](const ModelConfig&, const Recipe& r) {
       if (r.zero == 0 || r.dp > 1) return false;
       return r.offload == Offload::none || (r.zero == 3 && r.offload != Offload::params);
     }},
    {"precision", "zero_casts_to_16_bits",
     [](const ModelConfig&, const Recipe& r) { return r.zero != 0 && (r.precision == Precision::fp32 || r.autocast); }},
    {"zero", "parallelism_not_modelled",
     [](const ModelConfig& c, const Recipe& r) {
       return r.zero == 3 && (c.architecture == Architecture::plain || c.architecture == Architecture::t5);
     }},
    {"zero", "zero3_expert_adapters_not_modelled",
     // PEFT's wrappers move a parameter to another module while it is adapted.
     [](const ModelConfig& c, const Recipe& r) { return r.zero == 3 && adapts_experts(c, r); }},
    {"method", "sharded_4_bit_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.zero == 3 && r.weights == Weights::int8; }},
    {"optimizer", "offload_steps_with_adam",
     [](const ModelConfig&, const Recipe& r) {
       const bool by_adam = r.optimizer == Optimizer::adamw_fused;
       return r.zero != 0 && r.offload != Offload::none && !by_adam;
     }},
    {"offload", "params_offload_needs_zero3",
     [](const ModelConfig&, const Recipe& r) { return r.offload == Offload::params && (r.zero == 1 || r.zero == 2); }},
    {"sequence_parallel", "parallelism_not_modelled",
     [](const ModelConfig&, const Recipe& r) { return r.sequence_parallel && !is_torchtitan(r.stack); }},
    {"offload", "offload_not_modelled",
     [](const ModelConfig&, const Recipe& r) {
       const bool by_fsdp = r.fsdp != 0 && r.offload == Offload::params;
       return r.offload == Offload::activations || (r.offload != Offload::none && r.zero == 0 && !by_fsdp);
     }},
};

}  // namespace

std::optional<Problem> first_of(std::span<const Refusal> refusals, const ModelConfig& config, const Recipe& recipe) {
  for (const Refusal& refusal : refusals) {
    if (refusal.applies(config, recipe)) {
      return Problem{ProblemCode::unsupported_recipe, refusal.key, recipe_value(recipe, refusal.key), refusal.reason,
                     ""};
    }
  }
  return std::nullopt;
}

std::optional<Problem> only_while_generating(const Recipe& recipe) {
  return first_of(kOnlyWhileGenerating, {}, recipe);
}

bool prepared_for_kbit(const Recipe& r) {
  const bool int8_base = r.weights == Weights::int8 && r.task == Task::training;
  // DeepSpeed casts it back; sharded by FSDP the model is left as it is (trl sft_trainer.py, is_sharded_qlora).
  const bool by_peft = r.stack != Stack::native && r.zero == 0 && r.fsdp == 0;
  return (r.method == Method::qlora || int8_base) && r.prepare_kbit && by_peft;
}

bool plain_adamw(const Recipe& recipe) {
  return recipe.optimizer == Optimizer::adamw_fused || recipe.optimizer == Optimizer::adamw_foreach ||
         recipe.optimizer == Optimizer::adamw_forloop;
}

bool fp32_stream(const Recipe& r) {
  if (r.fsdp != 0) return r.param_dtype == ShardDtype::fp32;
  return r.precision == Precision::fp32 || prepared_for_kbit(r);
}

// Each image has at least one token of text before it.
std::uint64_t least_sequence(const ModelConfig& c, const Recipe& r) {
  return sees_images(c) ? times(r.images, plus(image_grid(c.vision, r).tokens, 1)) : 1;
}

bool takes_window_mask(const ModelConfig& c, const Recipe& r) {
  // torchtune's Mistral has none, and torchtitan builds no model that has.
  const bool windows = r.stack != Stack::course && r.stack != Stack::torchtune && !is_torchtitan(r.stack);
  return windows && c.sliding_window != 0 && r.seq > c.sliding_window;
}

std::optional<Problem> unsupported(const ModelConfig& config, const Recipe& recipe) {
  if (!config.untraced.empty()) {
    return Problem{ProblemCode::unsupported_recipe, "model_type", config.model_type, config.untraced, ""};
  }
  if (auto problem = only_while_generating(recipe)) return problem;
  if (recipe.stack == Stack::megatron) return unsupported_in_megatron(config, recipe);
  if (auto problem = first_of(kRefusals, config, recipe)) return problem;
  if (is_torchtitan(recipe.stack)) return unsupported_in_torchtitan(config, recipe);
  if (recipe.stack == Stack::native) return unsupported_in_native(config, recipe);
  return recipe.stack == Stack::torchtune ? unsupported_in_torchtune(config, recipe) : std::nullopt;
}

}  // namespace ledger
