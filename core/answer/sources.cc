#include "core/answer/sources.h"

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
    {OpKind::pad_right, "transformers loss_utils.py ForCausalLMLoss"},
    {OpKind::log_softmax, "pytorch derivatives.yaml _log_softmax (result saved)"},
    {OpKind::log_softmax_backward, "pytorch derivatives.yaml _log_softmax"},
    {OpKind::nll_loss_backward, "pytorch derivatives.yaml nll_loss_forward"},
    {OpKind::flash_attention, "pytorch flash_attn/flash_api.cpp mha_fwd"},
    {OpKind::flash_attention_backward, "pytorch flash_attn/flash_api.cpp mha_bwd"},
    {OpKind::embedding_backward, "pytorch embedding_dense_backward (dense, zero-filled)"},
    {OpKind::adamw, "pytorch torch/optim/adam.py _fused_adam"},
    {OpKind::zeros_like, "pytorch torch/optim/adam.py _init_group"},
    {OpKind::vector_norm, "pytorch torch/nn/utils/clip_grad.py"},
    {OpKind::stack, "pytorch torch/nn/utils/clip_grad.py"},
};

}  // namespace

const char* source_of(Category category, OpKind op) {
  if (category == Category::optimizer_states) return "pytorch torch/optim/adam.py _init_group";
  if (category == Category::workspace && op == OpKind::workspace) return "pytorch CublasHandlePool.cpp, flash_api.cpp";
  for (const SourceRow& row : kSources) {
    if (row.op == op) return row.source;
  }
  return category == Category::activations || category == Category::logits ? "pytorch derivatives.yaml"
                                                                           : "pytorch FunctionsManual.cpp";
}

}  // namespace ledger
