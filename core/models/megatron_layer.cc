// megatron_layer.cc - a layer's forward: attention, then an MLP or experts.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/models/megatron.h"
#include "core/models/megatron_tensors.h"
#include "core/models/ring_attention.h"

namespace ledger {
namespace {

Tensor make_workspace(Tape& tape, Bytes bytes) {
  const Tape::Scope scope(tape, "te_workspace", Tape::Scope::Below::nothing);
  const Tape::In in(tape, Category::workspace);
  return tape.empty(OpKind::workspace, {{bytes, Sym::none}}, DType::u8);
}

}  // namespace

void MegatronStage::ensure_workspace() const {
  if (te_workspace_ || o_.te_workspace == 0) return;
  te_workspace_ = make_workspace(tape_, o_.te_workspace);
}

// get_cublas_workspace with grouped_gemm: one for each stream that groups are computed on.
void MegatronStage::ensure_grouped_workspaces() const {
  if (grouped_workspaces_[0] || o_.te_workspace == 0) return;
  for (Tensor& workspace : grouped_workspaces_)
    workspace = make_workspace(tape_, o_.te_workspace);
}

megatron::Sharing MegatronStage::sharing(const Tensor& weight) const {
  return {o_.tp, o_.sequence_parallel, weight ? gradients_.of(weight) : Tensor(), o_.local};
}

Tensor MegatronStage::ln_linear(const LnLinear& m, const Tensor& x) const {
  if (o_.local) return norm_then_linear(m, x);
  ensure_workspace();
  const Tape::Scope scope(tape_, m.name);
  return megatron::norm_linear(x, {m.norm, c_.rms_norm_eps}, m.weight, m.bias, sharing(m.weight));
}

// FusedLayerNorm (apex), then ColumnParallelLinear.
Tensor MegatronStage::norm_then_linear(const LnLinear& m, const Tensor& x) const {
  const Tape::Scope scope(tape_, m.name);
  const Tensor normed = megatron::norm_linear(x, {m.norm, c_.rms_norm_eps}, Tensor(), Tensor(), {});
  if (!m.weight) return normed;
  return megatron::column_linear(normed, m.weight, m.bias, gather_buffer(), sharing(m.weight));
}

// [s, b, n, d], each head by itself.
Tensor MegatronStage::normed_heads(const LnLinear& m, const Tensor& x) const {
  const Tape::Scope scope(tape_, m.name);
  const Tensor heads = view(x, {x.dim(0), megatron::times_dim(x.dim(1), x.dim(2)), x.dim(3)});
  return view(megatron::norm_linear(heads, {m.norm, c_.rms_norm_eps}, Tensor(), Tensor(), {}), x.shape());
}

Tensor MegatronStage::row_linear(const Tensor& x, const Tensor& weight, const char* name) const {
  const Tape::Scope scope(tape_, name);
  return megatron::row_linear(x, weight, sharing(weight));
}

Tensor MegatronStage::bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual) const {
  const Tape::Scope scope(tape_, "bias_dropout_add");
  if (!bias && c_.residual_dropout == 0) return residual + x;
  return megatron::bias_dropout_add(x, bias, residual, c_.residual_dropout);
}

// DotProductAttention with cuDNN's kernel, or with flash attention, which wants sequences first: copies that it saves,
// and one of its result.
Tensor MegatronStage::core_attention(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const Tape::Scope scope(tape_, "core_attention");
  if (o_.local) return dot_product(q, k, v);
  if (o_.attention == Attention::eager) return unfused(q, k, v);
  const bool flash = o_.attention == Attention::flash;
  const auto by_head = [&](const Tensor& x) {  // [b, n, s, d]
    const Tensor by_sequence = transpose(x, 0, 1);
    return transpose(flash ? contiguous(by_sequence) : by_sequence, 1, 2);
  };
  const auto ready = [&](const Tensor& x) { return o_.cp != 1 && !flash ? contiguous(x) : x; };
  const Tensor query = by_head(ready(q));
  const Tensor key = by_head(ready(k));
  const Tensor value = by_head(ready(v));
  Tensor out;
  if (o_.cp != 1) {
    out = te_ring_attention(query, key, value,
                            {o_.cp_rank, o_.cp, o_.cp_exchanging, !flash, o_.cp_gathers, c_.attention_dropout});
  } else {
    out = flash ? flash_attention(query, key, value, 0, c_.attention_dropout)
                : cudnn_attention(query, key, value, 0, c_.attention_dropout);
  }
  out = reshape(transpose(transpose(out, 1, 2), 0, 1), {s_, b_, megatron::times_dim(np_, d_)});
  return contiguous(out);
}

Tensor MegatronStage::turned(const Tensor& x) const {
  return o_.rope_fusion ? megatron::fused_rope(x, frequencies_, o_.cp_rank, o_.cp) : megatron::plain_rope(x, angles_);
}

// SelfAttention.forward: the product is cut by groups; DotProductAttention makes q, k and v contiguous, unless those of
// every head lie side by side, a layout that it knows (sbh3d).
MegatronStage::Heads MegatronStage::heads_of(const Layer& layer, const Tensor& product) const {
  const Dim each{np_.size / ng_.size, Sym::none}, width = megatron::times_dim(each, d_);
  const Dim group{plus(width.size, times(2, d_.size)), Sym::none};
  Heads h;
  {
    const Tensor mixed = view(product, {s_, b_, ng_, group});
    megatron::Heads heads = megatron::split_qkv(mixed, width, d_);
    h.q = reshape(heads.q, {s_, b_, np_, d_});
    h.k = std::move(heads.k);
    h.v = std::move(heads.v);
  }
  if (layer.q_norm.norm) {
    h.q = normed_heads(layer.q_norm, h.q);
    h.k = normed_heads(layer.k_norm, contiguous(h.k));
  }
  const bool rotary = c_.style.position == Position::rotary;
  if (rotary) {
    h.q = turned(h.q);
    h.k = turned(h.k);
  }
  const bool side_by_side = !rotary && each.size == 1;
  if (!side_by_side) {
    for (Tensor* one : {&h.q, &h.k, &h.v})
      *one = contiguous(*one);
  }
  return h;
}

Tensor MegatronStage::attention(const Layer& layer, const Tensor& x) const {
  Heads h;
  if (layer.latent) {
    h = latent_heads(*layer.latent, ln_linear(layer.qkv, x));
  } else {
    const Tensor product = ln_linear(layer.qkv, x);
    const Tape::Scope scope(tape_, "self_attention");
    h = heads_of(layer, product);
    h.product = product;
  }
  const Tape::Scope scope(tape_, "self_attention");
  if (o_.checkpointing != Checkpointing::selective) return core_attention(h.q, h.k, h.v);
  return tape_.checkpoint([this, q = h.q, k = h.k, v = h.v] {  // recompute_modules: core_attn
    return core_attention(q, k, v);
  });
}

Tensor MegatronStage::activate_fused(const Tensor& x, const Tensor& bias) const {
  const Tape::Scope scope(tape_, "activation");
  if (c_.act == Act::relu2) return megatron::squared_relu(x);
  return megatron::bias_activation(x, bias, c_.style.feed == Feed::gated);
}

Tensor MegatronStage::feed_forward(const Layer& layer, const Tensor& x) const {
  Tensor inner = ln_linear(layer.fc1, x);
  if (layer.experts) {
    ensure_grouped_workspaces();
    return layer.experts->forward(inner);
  }
  inner = activate_fused(inner, layer.fc1_bias);
  return row_linear(inner, layer.fc2, "linear_fc2");
}

// TransformerLayer.forward.
Tensor MegatronStage::layer_forward(const Layer& layer, const Tensor& x) const {
  Tensor hidden;
  {
    Tensor out = attention(layer, x);
    out = row_linear(out, layer.proj, "linear_proj");
    hidden = bias_dropout_add(out, layer.proj_bias, x);
  }
  const Tensor out = feed_forward(layer, hidden);
  return bias_dropout_add(out, layer.fc2_bias, hidden);
}

// checkpointed_forward: where the unit that begins with layer `first` of `count` ends, or `first`: it is not
// recomputed.
std::size_t MegatronStage::recomputed_to(std::size_t first, std::size_t count) const {
  if (o_.checkpointing != Checkpointing::full) return first;
  const auto layers = static_cast<std::size_t>(o_.recompute_num_layers);
  if (o_.recompute_method == RecomputeMethod::block) return first < layers ? first + 1 : first;
  return std::min(first + layers, count);
}

Tensor MegatronStage::run_layer(std::size_t position, const Tensor& x) const {
  const Tape::Layer number(tape_, static_cast<std::int32_t>(*layer_at(position)));
  return layer_forward(layers_[position], x);
}

// A chunk's layers. CheckpointFunction is reentrant.
Tensor MegatronStage::run_layers(std::size_t chunk, const Tensor& x) const {
  const auto depth = static_cast<std::size_t>(depth_);
  std::vector<std::size_t> positions;
  for (std::size_t i = chunk * depth; i < (chunk + 1) * depth; ++i) {
    if (layer_at(i)) positions.push_back(i);
  }
  Tensor hidden = x;
  for (std::size_t i = 0; i < positions.size();) {
    const std::size_t end = recomputed_to(i, positions.size());
    if (end == i) {
      hidden = run_layer(positions[i++], hidden);
      continue;
    }
    const Tape::Layer number(tape_, static_cast<std::int32_t>(*layer_at(positions[i])));
    const auto unit = [this,
                       part = std::vector(positions.begin() + static_cast<std::ptrdiff_t>(i),
                                          positions.begin() + static_cast<std::ptrdiff_t>(end))](const Tensor& input) {
      Tensor output = input;
      for (const std::size_t position : part)
        output = run_layer(position, output);
      return output;
    };
    hidden = tape_.checkpoint_reentrant(unit, hidden);
    i = end;
  }
  return hidden;
}

}  // namespace ledger
