#include "core/training/step_parts.h"

#include "core/models/dtensor.h"
#include "core/models/torchtitan.h"
#include "core/parallel/deepspeed.h"
#include "core/parallel/mesh_of.h"
#include "core/training/support.h"

namespace ledger {
namespace {

// Under DeepSpeed: the engine casts every floating-point parameter, whatever dtype it came in (engine.py,
// _cast_module_mixed_precision; fp16 is Trainer's fp16=True).
DType engine_dtype(const Recipe& recipe) {
  return recipe.precision == Precision::amp_fp16 ? DType::f16 : DType::bf16;
}

// QLoRA prepared by PEFT holds what is not quantised in fp32 (prepare_model_for_kbit_training).
DType weight_dtype(const Recipe& recipe) {
  if (recipe.zero != 0) return engine_dtype(recipe);
  if (prepared_for_kbit(recipe)) return DType::f32;
  return recipe.precision == Precision::bf16 ? DType::bf16 : DType::f32;
}

LinearPolicy linear_policy(const Recipe& recipe, const TraceOptions& options) {
  LinearPolicy policy;
  if (recipe.method == Method::full) return policy;
  policy.quantise = recipe.method == Method::qlora;
  policy.int8 = recipe.weights == Weights::int8;
  policy.double_quant = recipe.double_quant;
  policy.rank = recipe.rank;
  policy.alpha = options.lora_alpha;
  policy.targets = recipe.targets;
  policy.adapter_dtype = recipe.adapter_dtype == AdapterDtype::bf16 ? DType::bf16 : DType::f32;
  // With zero.Init parameters stay as they are: adapters, which PEFT adds later, too. (Quantised models know none.)
  const bool init = recipe.zero == 3 && recipe.method != Method::qlora;
  const bool cast = !init || recipe.adapter_dtype == AdapterDtype::bf16;
  if (recipe.zero != 0 && cast) policy.adapter_dtype = engine_dtype(recipe);
  if (options.weights == DType::f64) policy.adapter_dtype = DType::f64;  // PEFT makes adapters in the base's dtype
  policy.dropout = recipe.lora_dropout;
  policy.dora = recipe.dora;
  return policy;
}

// Weights in fp64 leave nothing to mixed precision.
DType dtype_of(ShardDtype dtype, const TraceOptions& options) {
  if (options.weights == DType::f64) return DType::f64;
  return dtype == ShardDtype::bf16 ? DType::bf16 : DType::f32;
}

}  // namespace

ModelOptions model_options(const Recipe& recipe, const TraceOptions& options) {
  ModelOptions model;
  model.weights = options.weights.value_or(weight_dtype(recipe));
  model.batch = recipe.batch;
  model.seq = recipe.seq;
  model.decoder_seq = recipe.decoder_seq;
  model.checkpointing = recipe.checkpointing;
  model.checkpoints_in_units = recipe.fsdp_activation_checkpointing;
  model.attention = recipe.attention;
  model.linears = linear_policy(recipe, options);
  // PEFT and transformers call enable_input_require_grads() when checkpointing a model whose base is frozen.
  model.input_requires_grad =
      recipe.method != Method::full && recipe.checkpointing != Checkpointing::none && recipe.stack != Stack::native;
  model.keep_outputs = recipe.keep_outputs;
  model.loss = recipe.loss;
  model.liger = recipe.liger;
  model.grad_accum = recipe.grad_accum;
  model.compile = recipe.compile;
  model.float8 = recipe.float8;
  model.tp = recipe.tp;
  model.tp_rank = mesh_of(recipe).place(options.rank, Axis::tensor);
  model.cp = recipe.cp;
  model.cp_rank = mesh_of(recipe).place(options.rank, Axis::context);
  model.ep = recipe.ep;
  model.ep_rank = mesh_of(recipe).expert_place(options.rank).expert;
  model.cp_gathers = recipe.cp_comm_type != CpComm::p2p;
  model.images = recipe.images;
  model.image_height = recipe.image_height;
  model.image_width = recipe.image_width;
  model.freeze_vision_tower = recipe.freeze_vision_tower;
  model.stack = recipe.stack;
  return model;
}

Fsdp1::Options fsdp1_options(const Recipe& recipe, const TraceOptions& options) {
  return {.world = recipe.dp,
          .rank = options.rank,
          .param_dtype = dtype_of(recipe.param_dtype, options),
          .reduce_dtype = dtype_of(recipe.reduce_dtype, options),
          .reshard_after_forward = recipe.reshard_after_forward,
          .adapters = recipe.method != Method::full,
          .offload = recipe.offload == Offload::params};
}

// torchtitan gives nothing up between the micro-batches of a pipeline (apply_fsdp, pp_enabled).
Fsdp2::Options fsdp2_options(const ModelConfig& config, const Recipe& recipe, const TraceOptions& options) {
  const TitanVersion* const titan = titan_version(recipe.stack);
  const bool keeps_last = titan != nullptr && titan->ends_in_root;
  const UnitId behind = kFirstLayerUnit + static_cast<UnitId>(config.num_hidden_layers);  // the last layer
  return {.world = times(recipe.dp, recipe.cp),
          .rank = mesh_of(recipe).data_place(options.rank),
          .tensor_ranks = recipe.tp,
          .param_dtype = dtype_of(recipe.param_dtype, options),
          .reduce_dtype = dtype_of(recipe.reduce_dtype, options),
          .reshard_after_forward = recipe.reshard_after_forward && recipe.pp == 1,
          .titan_units = recipe.units == Units::titan,
          .offload = recipe.offload == Offload::params,
          .kept_from = keeps_last ? behind - 1 : kNoUnit,
          .pipelined = recipe.pp != 1,
          .float8_gathered = recipe.float8_all_gather,
          .experts_from = recipe.ep == 1 ? kNoUnit : behind,
          .expert_ranks = recipe.ep};
}

void sum_partial_gradients(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) {
    Tape& tape = parameter.tape();
    if (parameter_of(parameter).cut.piece != 0) continue;
    const Tape::In in(tape, Category::gradients);
    parameter.impl()->grad = dtensor::sum_of_ranks(parameter.grad());
    parameter_of(parameter).gradient = parameter.grad().impl()->storage->id;
  }
}

}  // namespace ledger
