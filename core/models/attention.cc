#include "core/models/attention.h"

#include <cmath>

namespace ledger {

Tensor repeat_kv(const Tensor& x, Dim heads) {
  const Dim kv = x.dim(1);
  if (kv.size == heads.size) return x;
  const Dim times_repeated{heads.size / kv.size, Sym::none};
  const Tensor five = unsqueeze(x, 2);
  const Tensor expanded = expand(five, {x.dim(0), kv, times_repeated, x.dim(2), x.dim(3)});
  return reshape(expanded, {x.dim(0), heads, x.dim(2), x.dim(3)});
}

namespace {

double scale_of(const Tensor& q, const AttentionOptions& o) {
  return o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(q.dim(3).size));
}

// transformers models/llama/modeling_llama.py, eager_attention_forward; softcap: models/gemma2/modeling_gemma2.py.
Attended eager(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const AttentionOptions& o) {
  const Tensor key_states = repeat_kv(k, q.dim(1));
  const Tensor value_states = repeat_kv(v, q.dim(1));
  Tensor weights = matmul(q, transpose(key_states, 2, 3));
  weights = o.divides ? weights / (1 / scale_of(q, o)) : weights * scale_of(q, o);
  if (o.softcap != 0) {
    weights = weights / o.softcap;
    weights = tanh(weights);
    weights = weights * o.softcap;
  }
  if (mask) weights = weights + mask;  // of attention both ways there is none
  if (o.fp32_softmax) {
    weights = softmax(weights, DType::f32);
    weights = to(weights, q.dtype());
  } else {  // Llama 4's, which autocast alone widens
    weights = q.tape().autocast_fp32(weights);
    weights = softmax(weights, weights.dtype());
  }
  weights = dropout(weights, o.dropout);
  const Tensor output = matmul(weights, value_states);
  return {contiguous(transpose(output, 1, 2)), weights};
}

}  // namespace

// transformers models/gpt_oss/modeling_gpt_oss.py, eager_attention_forward.
Attended attend_with_sinks(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& sinks,
                           const AttentionOptions& o) {
  const Tensor key_states = repeat_kv(k, q.dim(1));
  const Tensor value_states = repeat_kv(v, q.dim(1));
  Tensor weights = matmul(q, transpose(key_states, 2, 3));
  weights = weights * scale_of(q, o);
  weights = weights + mask;
  const Dim one{1, Sym::none};
  const Tensor of_queries = expand(view(sinks, {one, q.dim(1), one, one}), {q.dim(0), q.dim(1), q.dim(2), one});
  Tensor logits = cat(weights, of_queries, -1);
  {
    const Tensor highest = max_last(logits).values;
    logits = sub(logits, highest);
  }
  const Tensor probabilities = softmax(logits, logits.dtype());
  const Tensor scores = slice(probabilities, -1, 0, weights.dim(3));
  weights = to(dropout(scores, o.dropout), v.dtype());
  const Tensor output = matmul(weights, value_states);
  return {contiguous(transpose(output, 1, 2)), weights};
}

namespace {

// aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math, causal.
Tensor math(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionOptions& o) {
  Tape& tape = query.tape();
  const Tensor q0 = tape.autocast_low(query), k0 = tape.autocast_low(key), v0 = tape.autocast_low(value);
  const DType origin = q0.dtype();
  const bool half = origin == DType::bf16 || origin == DType::f16;
  const Tensor upcast_q = half ? to(q0, DType::f32) : q0;
  const Tensor upcast_k = half ? to(k0, DType::f32) : k0;
  const Tensor upcast_v = half ? to(v0, DType::f32) : v0;
  const double scaling = std::sqrt(scale_of(q0, o));
  const Tensor q = upcast_q * scaling;
  Tensor mask;  // is_causal holds for more than one query: integrations/sdpa_attention.py
  if (o.causal && q.dim(2).size > 1) {
    mask = causal_mask(tape, {q.dim(2), k0.dim(2)});
    mask = additive_mask(mask, q.dtype(), true);
  }
  const Tensor k = repeat_kv(upcast_k, q.dim(1));
  const Tensor v = repeat_kv(upcast_v, q.dim(1));
  Tensor weights = matmul(q, transpose(k * scaling, 2, 3));
  if (mask) weights = weights + mask;
  weights = safe_softmax(weights);
  weights = dropout(weights, o.dropout);
  return to(matmul(weights, v), origin);
}

}  // namespace

namespace {

constexpr std::uint64_t kBiasAlignment = 8;  // of the memory-efficient kernel, in elements

// sdpa with a boolean mask: grouped keys and values are repeated (integrations/sdpa_attention.py, use_gqa_in_sdpa),
// flash attention takes no mask, and the memory-efficient kernel takes it as a bias, padded where rows are not aligned.
// Source: aten/src/ATen/native/transformers/attention.cpp, convert_boolean_attn_mask and preprocess_mask.
Tensor masked(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const AttentionOptions& o) {
  Tape& tape = q.tape();
  const Tensor query = tape.autocast_low(q);
  const Tensor key = tape.autocast_low(repeat_kv(k, q.dim(1))), value = tape.autocast_low(repeat_kv(v, q.dim(1)));
  Tensor bias = additive_mask(mask, query.dtype(), true);
  const Tensor unpadded = bias;
  if (const Dim keys = bias.dim(3); keys.size % kBiasAlignment != 0) {
    bias = slice(pad_right(bias, {round_up(keys.size, kBiasAlignment), Sym::none}, 0), 3, 0, keys);
  }
  return efficient_attention(query, key, value, o.scale, o.dropout, bias);
}

}  // namespace

namespace {

// Flash attention takes heads of one width only, the memory-efficient kernel also values of another, in whole vectors
// of 16 bytes: sdp_utils.cpp, check_head_dim_size_flash and check_head_dim_size_mem_efficient.
Attention kernel_of_widths(DType dtype, std::uint64_t width, std::uint64_t value_width) {
  const std::uint64_t vector = 16 / element_bytes(dtype);
  return width % vector == 0 && value_width % vector == 0 ? Attention::efficient : Attention::math;
}

}  // namespace

Attention sdpa_kernel(DType dtype, bool grouped) {
  if (dtype == DType::bf16 || dtype == DType::f16) return Attention::flash;
  return grouped ? Attention::math : Attention::efficient;
}

Attended attend(Attention kind, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                const AttentionOptions& options) {
  if (kind == Attention::eager) return eager(q, k, v, mask, options);
  if (mask) return {contiguous(transpose(masked(q, k, v, mask, options), 1, 2)), Tensor()};
  if (kind == Attention::sdpa) {
    const Tape& tape = q.tape();
    const DType dtype = tape.autocast_enabled() && q.dtype() == DType::f32 ? tape.autocast_dtype() : q.dtype();
    // fp64 has no fused kernel on a GPU; numerics tests run the flash operator, which computes the same function.
    if (q.dim(3).size != v.dim(3).size) {
      kind = dtype == DType::f64 ? Attention::efficient : kernel_of_widths(dtype, q.dim(3).size, v.dim(3).size);
    } else {
      kind = dtype == DType::f64 ? Attention::flash : sdpa_kernel(dtype, q.dim(1).size != k.dim(1).size);
    }
  }
  Tensor output;
  if (kind == Attention::math) {
    output = math(q, k, v, options);
  } else if (kind == Attention::efficient) {
    output = efficient_attention(q, k, v, options.scale, options.dropout, Tensor(), options.causal);
  } else if (kind == Attention::cudnn) {
    output = cudnn_attention(q, k, v, options.scale, options.dropout, options.causal);
  } else {
    output = flash_attention(q, k, v, options.scale, options.dropout, options.causal);
  }
  return {contiguous(transpose(output, 1, 2)), Tensor()};
}

Tensor make_mask(Attention kind, Tape& tape, const MaskShape& shape, DType dtype) {
  // A sequence as long as the window is wholly seen: the references (5.12) make no mask for it. Beside a cache the
  // older rule is kept, for which keys of a window's number take one.
  const bool past_window =
      shape.s.size == shape.keys.size ? shape.keys.size > shape.window : shape.keys.size >= shape.window;
  const bool windowed = shape.window != 0 && past_window;
  const bool chunked = shape.chunk != 0 && shape.keys.size >= shape.chunk;
  const bool needed = kind == Attention::eager || (kind != Attention::flash && (shape.always || windowed || chunked));
  if (!needed) return Tensor();
  const Tape::Scope scope(tape, "causal_mask");
  const Tape::NoGrad no_grad(tape);
  const std::uint64_t window = windowed ? shape.window : 0;
  const Shape sizes{shape.b, {1, Sym::none}, shape.s, shape.keys};
  if (chunked) {
    const Tensor mask = chunked_mask(tape, sizes, shape.chunk);
    return kind == Attention::eager ? additive_mask(mask, dtype, false) : mask;
  }
  const Tensor mask = causal_mask(tape, sizes, shape.before, window);
  return kind == Attention::eager ? additive_mask(mask, dtype, false) : mask;
}

}  // namespace ledger
