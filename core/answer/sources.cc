#include "core/answer/sources.h"

#include <span>

#include "core/trace/streams.h"

namespace ledger {
namespace {

struct SourceRow {
  OpKind op;
  const char* source;
};

// Operators whose memory is decided elsewhere than by derivatives.yaml and their own output.
constexpr SourceRow kSources[] = {
    {OpKind::load_parameter, "config.json"},
    {OpKind::load_buffer, "transformers modeling_llama.py LlamaRotaryEmbedding"},
    {OpKind::load_tokens, "recipe: batch x seq, int64"},
    {OpKind::load_values, "recipe: batch"},
    {OpKind::convolution, "pytorch derivatives.yaml convolution (input and filters saved)"},
    {OpKind::convolution_backward, "pytorch derivatives.yaml convolution"},
    {OpKind::masked_scatter, "pytorch cuda/IndexKernel.cpp masked_scatter__cuda"},
    {OpKind::masked_select, "pytorch FunctionsManual.cpp masked_scatter_backward"},
    {OpKind::packed_attention, "flash-attention flash_api.cpp mha_varlen_fwd"},
    {OpKind::packed_attention_backward, "flash-attention flash_api.cpp mha_varlen_bwd"},
    {OpKind::image_turns, "transformers modeling_llama4.py Llama4VisionRotaryEmbedding"},
    {OpKind::window_order, "transformers vision_utils.py get_vision_window_index"},
    {OpKind::pad_right, "transformers loss_utils.py ForCausalLMLoss"},
    {OpKind::log_softmax, "pytorch derivatives.yaml _log_softmax (result saved)"},
    {OpKind::log_softmax_backward, "pytorch derivatives.yaml _log_softmax"},
    {OpKind::nll_loss_backward, "pytorch derivatives.yaml nll_loss_forward"},
    {OpKind::flash_attention, "pytorch flash_attn/flash_api.cpp mha_fwd"},
    {OpKind::flash_attention_backward, "pytorch flash_attn/flash_api.cpp mha_bwd"},
    {OpKind::cudnn_attention, "pytorch cudnn/MHA.cpp run_cudnn_SDP_fprop"},
    {OpKind::cudnn_attention_backward, "pytorch cudnn/MHA.cpp run_cudnn_SDP_bprop"},
    {OpKind::efficient_attention, "pytorch transformers/cuda/attention.cu _efficient_attention_forward"},
    {OpKind::efficient_attention_backward, "pytorch transformers/cuda/attention_backward.cu"},
    {OpKind::copy_from_host, "axolotl offload_cpu.py CPU_Offloaded_Gradient_Checkpointer"},
    {OpKind::receive, "Megatron-LM pipeline_parallel/p2p_communication.py"},
    {OpKind::all_gather, "pytorch _fsdp_collectives.py foreach_all_gather"},
    {OpKind::gather_copy_in, "pytorch _fsdp_collectives.py foreach_all_gather"},
    {OpKind::gather_copy_out, "pytorch _fsdp_collectives.py foreach_all_gather_copy_out"},
    {OpKind::reduce_copy_in, "pytorch _fsdp_collectives.py foreach_reduce"},
    {OpKind::reduce_scatter, "pytorch _fsdp_collectives.py foreach_reduce"},
    {OpKind::index_rows, "trl sft_trainer.py _chunked_cross_entropy_loss"},
    {OpKind::index_rows_backward, "trl sft_trainer.py _chunked_cross_entropy_loss"},
    {OpKind::sort_true_first, "trl sft_trainer.py _chunked_cross_entropy_loss"},
    {OpKind::cut_positions, "ml-cross-entropy utils.py _build_flat_valids"},
    {OpKind::cut_logsumexp, "ml-cross-entropy cce_lse_forward.py"},
    {OpKind::cut_neg_dot, "ml-cross-entropy indexed_dot.py"},
    {OpKind::cut_backward, "ml-cross-entropy cce_backward.py"},
    {OpKind::add_rms_norm, "core/trace/fused_ops.cc"},
    {OpKind::add_rms_norm_backward, "core/trace/fused_ops.cc"},
    {OpKind::swiglu, "core/trace/fused_ops.cc"},
    {OpKind::swiglu_backward, "core/trace/fused_ops.cc"},
    {OpKind::cross_entropy_inplace, "core/trace/fused_ops.cc"},
    {OpKind::own_attention, "core/trace/fused_ops.cc"},
    {OpKind::own_attention_backward, "core/trace/fused_ops.cc"},
    {OpKind::dropout, "pytorch Dropout.cpp native_dropout (result and byte mask)"},
    {OpKind::quantise, "bitsandbytes functional.py quantize_4bit"},
    {OpKind::dequantise, "bitsandbytes functional.py dequantize_4bit"},
    {OpKind::dequantise_absmax, "bitsandbytes functional.py dequantize_blockwise"},
    {OpKind::softmax, "pytorch derivatives.yaml _softmax (result saved)"},
    {OpKind::eye, "peft lora/dora.py (identity through the adapter)"},
    {OpKind::gemm_4bit, "bitsandbytes backends/cuda/ops.py gemm_4bit"},
    {OpKind::int8_linear, "bitsandbytes autograd/_functions.py MatMul8bitLt"},
    {OpKind::absolute, "torchao float8/float8_utils.py tensor_to_amax"},
    {OpKind::largest, "torchao float8/float8_utils.py tensor_to_amax"},
    {OpKind::float8, "torchao float8/float8_linear.py"},
    {OpKind::embedding_backward, "pytorch embedding_dense_backward (dense, zero-filled)"},
    {OpKind::adamw, "pytorch torch/optim/adam.py _fused_adam"},
    {OpKind::zeros_like, "pytorch torch/optim/adam.py _init_group"},
    {OpKind::vector_norm, "pytorch torch/nn/utils/clip_grad.py"},
    {OpKind::stack, "pytorch torch/nn/utils/clip_grad.py"},
};

struct NameSource {
  std::string_view beginning;
  const char* source;
};

// DeepSpeed's buffers, by the names that core/parallel gives them; longer beginnings first.
constexpr NameSource kNameSources[] = {
    {"zero.all_gather", "deepspeed zero/partition_parameters.py _all_gather_coalesced"},
    {"zero.gather", "deepspeed zero/partition_parameters.py AllGatherCoalescedHandle, _all_gather_sequential"},
    {"zero.persistent", "deepspeed zero/stage3.py _post_step (persistent_parameters)"},
    {"zero.reduce_bucket", "deepspeed zero/stage_1_and_2.py setup_buckets; stage3.py _setup_for_real_optimizer"},
    {"zero.reduce", "deepspeed zero/stage_1_and_2.py allreduce_bucket; comm/coalesced_collectives.py"},
    {"zero.gradient_partitions", "deepspeed zero/stage3.py grad_partitions_flat_buffer"},
    {"zero.gradient_partition", "deepspeed zero/stage_1_and_2.py copy_grads_in_partition"},
    {"zero.param_partitions", "deepspeed zero/stage3.py _create_fp16_partitions_with_defragmentation"},
    {"zero.params", "deepspeed zero/stage_1_and_2.py flatten_dense_tensors_aligned"},
    {"fsdp.flat_", "pytorch torch/distributed/fsdp/_flat_param.py"},
    {"pipeline.", "pytorch torch/distributed/pipelining/stage.py"},
    {"zero.", "deepspeed zero/stage_1_and_2.py, stage3.py"},
};

// FSDP1 shares FSDP2's names of its collectives' buffers, not its code.
constexpr NameSource kFlatSources[] = {
    {kAllGatherScope, "pytorch torch/distributed/fsdp/_flat_param.py _all_gather_flat_param"},
    {kReduceScatterScope, "pytorch torch/distributed/fsdp/_runtime_utils.py _reduce_grad"},
};

// Megatron's own, by a part of their names.
constexpr NameSource kMegatronSources[] = {
    {".token_dispatcher", "Megatron-LM moe/token_dispatcher.py, moe_utils.py (permute, unpermute)"},
    {".mlp.router", "Megatron-LM moe/router.py, moe_utils.py topk_routing_with_score_function"},
    {".mlp.experts", "TransformerEngine module/grouped_linear.py; Megatron-LM fusions/fused_bias_swiglu.py"},
    {"dummy_wgrad", "TransformerEngine module/base.py get_dummy_wgrad"},
    {"main_grads", "Megatron-LM distributed/param_and_grad_buffer.py"},
    {"param_data", "Megatron-LM distributed/param_and_grad_buffer.py"},
};

const char* source_in_megatron(std::string_view name) {
  for (const NameSource& row : kMegatronSources) {
    if (name.find(row.beginning) != std::string_view::npos) return row.source;
  }
  return nullptr;
}

const char* source_by_name(std::span<const NameSource> rows, std::string_view name) {
  for (const NameSource& row : rows) {
    if (name.starts_with(row.beginning)) return row.source;
  }
  return nullptr;
}

struct OptimizerSource {
  Optimizer optimizer;
  const char* source;
};

constexpr OptimizerSource kOptimizerSources[] = {
    {Optimizer::adamw_8bit, "bitsandbytes optim/optimizer.py Optimizer2State"},
    {Optimizer::paged_adamw_8bit, "bitsandbytes optim/optimizer.py Optimizer2State"},
    {Optimizer::lion, "bitsandbytes optim/optimizer.py Optimizer1State"},
    {Optimizer::adamw_ao_8bit, "torchao optim/subclass_8bit.py"},
    {Optimizer::adamw_ao_4bit, "torchao optim/subclass_4bit.py"},
    {Optimizer::sgd_momentum, "pytorch torch/optim/sgd.py"},
    {Optimizer::adafactor_torch, "pytorch torch/optim/_adafactor.py"},
    {Optimizer::adafactor_hf, "transformers optimization.py Adafactor"},
    {Optimizer::muon, "pytorch torch/optim/_muon.py, adam.py"},
    {Optimizer::galore_adamw, "galore_torch adamw.py, galore_projector.py"},
};

const char* optimizer_source(Optimizer optimizer) {
  for (const OptimizerSource& row : kOptimizerSources) {
    if (row.optimizer == optimizer) return row.source;
  }
  return "pytorch torch/optim/adam.py _init_group";
}

}  // namespace

const char* source_of(std::string_view name, Category category, OpKind op, const Recipe& recipe) {
  if (const char* const source = source_by_name(kNameSources, name)) return source;
  if (const char* const source = recipe.fsdp == 1 ? source_by_name(kFlatSources, name) : nullptr) return source;
  if (const char* const source = recipe.stack == Stack::megatron ? source_in_megatron(name) : nullptr) return source;
  if (category == Category::kv_cache) return "transformers cache_utils.py";
  if (category == Category::communication && op == OpKind::zeros) return "pytorch c10d/reducer.cpp initialize_buckets";
  if (category == Category::optimizer_states || op == OpKind::optimizer_math) return optimizer_source(recipe.optimizer);
  if (category == Category::workspace && op == OpKind::workspace) return "pytorch CublasHandlePool.cpp, flash_api.cpp";
  for (const SourceRow& row : kSources) {
    if (row.op == op) return row.source;
  }
  return category == Category::activations || category == Category::logits ? "pytorch derivatives.yaml"
                                                                           : "pytorch FunctionsManual.cpp";
}

}  // namespace ledger
