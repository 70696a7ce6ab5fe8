// torchtitan_attention.cc - rotary tables, norms and attention of torchtitan's decoders.
#include "core/models/attention.h"
#include "core/models/ring_attention.h"
#include "core/models/rotary.h"
#include "core/models/torchtitan.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

constexpr std::uint64_t kCudnnHead = 128;  // sdp_utils.cpp, check_cudnn_tensor_shapes: heads up to this, by eights

// repeat_kv: [b, s, nkv, d] at all `heads` query heads.
Tensor repeat_heads(const Tensor& x, Dim heads) {
  const Dim groups = x.dim(2), each{heads.size / groups.size, Sym::none};
  if (each.size == 1) return x;
  const Tensor copies = expand(unsqueeze(x, 3), {x.dim(0), x.dim(1), groups, each, x.dim(3)});
  return reshape(copies, {x.dim(0), x.dim(1), heads, x.dim(3)});
}

}  // namespace

// precompute_freqs_cis: e^(i position frequency); precompute_rope_cache: cosine and sine side by side, each for both
// halves of a head. For as many positions as a sequence has: max_seq_len is training.seq_len.
void TorchtitanDecoder::make_rope_cache(Tape& tape) {
  const Tape::Scope scope(tape, complex_rope_ ? "freqs_cis" : "rope_cache");
  const Tape::In in(tape, Category::buffers);
  Tensor frequencies = tape.empty(OpKind::load_buffer, {dims_.half_rot}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&frequencies}, {rope_theta_, {0, 0}});
  Tensor angles;
  {
    const Dim all{options_.seq, Sym::s};
    const Tensor index = to(arange(tape, all), DType::f32);
    angles = view(index, {all, kOne}) * view(frequencies, {kOne, dims_.half_rot});
  }
  if (complex_rope_) {
    rope_cache_ = polar(angles);
    return;
  }
  angles = cat(angles, angles, -1, Sym::d);
  const Tensor cosine = cos(angles), sine = sin(angles);
  rope_cache_ = cat(cosine, sine, -1);
}

// _context_parallel_buffers: the tokens of this rank are put in the buffer's first part, which the tensor then is.
Tensor TorchtitanDecoder::own_tokens(const Tensor& whole, int dim) const {
  const Tape::NoGrad no_grad(whole.tape());
  Shape shape = whole.shape();
  shape.set(static_cast<std::size_t>(dim), dims_.s);
  const Tensor first = whole.tape().view_of(whole, shape, contiguous_strides(shape), 0);
  copy_into(first, own_pieces(whole, dim, options_.cp_rank, options_.cp, OpKind::cat));
  return first;
}

// train.py, create_context_parallel_ctx: freqs_cis is cloned, cut, and restored after the backward pass.
void TorchtitanDecoder::take_own_places(Tape& tape) {
  const Tape::NoGrad no_grad(tape);
  const Tape::Scope scope(tape, complex_rope_ ? "freqs_cis" : "rope_cache");
  const Tape::In in(tape, Category::buffers);
  const Tensor whole = rope_cache_;
  kept_rope_cache_ = clone(whole);
  rope_cache_ = own_tokens(whole, 0);
  tape.at_backward_end([this, whole] {
    copy_into(whole, kept_rope_cache_);
    rope_cache_ = whole;
    kept_rope_cache_.reset();
  });
}

// norms.py: normed in fp32, rounded, then scaled; aten/src/ATen/native/layer_norm.cpp, rms_norm: scaled, then rounded.
Tensor TorchtitanDecoder::Norm::forward(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), name);
  if (kind == TitanNorm::fused) return fused_rms_norm(x, weight, eps);
  Tensor output;
  {
    const Tensor wide = to(x, DType::f32);
    Tensor scale = mean_last(pow(wide, 2));
    scale = scale + eps;
    scale = rsqrt(scale);
    output = wide * scale;
  }
  if (kind == TitanNorm::own) {
    output = to(output, x.dtype());
    return output * weight;
  }
  output = output * weight;
  return to(output, x.dtype());
}

// apply_rotary_emb of Llama: all names live until both results are made.
TorchtitanDecoder::Heads TorchtitanDecoder::rotate_complex(const Tensor& xq, const Tensor& xk) const {
  const Tensor xq_ = to(xq, DType::f32);
  const Tensor xk_ = to(xk, DType::f32);
  const Tensor freqs_cis = view(rope_cache_, {kOne, dims_.s, kOne, rope_cache_.dim(1)});
  const Tensor xq_out = complex_mul(xq_, freqs_cis);
  const Tensor xk_out = complex_mul(xk_, freqs_cis);
  Heads turned;
  turned.q = to(xq_out, xq.dtype());
  turned.k = to(xk_out, xk.dtype());
  return turned;
}

// The same of Qwen 3: cosine and sine in the heads' dtype.
TorchtitanDecoder::Heads TorchtitanDecoder::rotate_halves(const Tensor& xq, const Tensor& xk) const {
  const Dim both{times(2, dims_.d.size), Sym::none};
  const Tensor cache = view(rope_cache_, {kOne, dims_.s, kOne, both});
  const Tensor cosine = to(slice(cache, -1, 0, dims_.d), xq.dtype());
  const Tensor sine = to(slice(cache, -1, dims_.d.size, dims_.d), xq.dtype());
  const auto turn = [&](const Tensor& x) {
    const Tensor straight = x * cosine;
    const Tensor crossed = rotate_half(x, dims_.half_d) * sine;
    return straight + crossed;
  };
  Heads turned;
  turned.q = turn(xq);
  turned.k = turn(xk);
  return turned;
}

// ScaledDotProductAttentionWrapper. q, k, v [b, nh, s, d].
Tensor TorchtitanDecoder::sdpa(const Tensor& q, const Tensor& k, const Tensor& v) const {
  const bool halves = q.dtype() == DType::bf16 || q.dtype() == DType::f16 || q.tape().autocast_enabled();
  const bool cudnn_can = halves && dims_.d.size <= kCudnnHead && dims_.d.size % 8 == 0;
  const bool chosen = options_.attention == Attention::sdpa && version_.cudnn_first && cudnn_can;
  if (options_.cp != 1) {
    const bool cudnn = chosen || options_.attention == Attention::cudnn;
    const Tensor out = torch_ring_attention(q, k, v, {options_.cp_rank, options_.cp, 1, cudnn, options_.cp_gathers, 0});
    return contiguous(transpose(out, 1, 2));
  }
  return attend(chosen ? Attention::cudnn : options_.attention, q, k, v, Tensor()).output;
}

void TorchtitanDecoder::make_attention(ModuleBuilder& builder, const std::string& at, Layer& layer) const {
  if (qk_norm_) layer.q_norm = make_norm(builder, at, names_.q_norm, dims_.d, compiles_layers_);
  if (qk_norm_) layer.k_norm = make_norm(builder, at, names_.k_norm, dims_.d, compiles_layers_);
  layer.q = Linear::make(builder, at, names_.q, dims_.h, dims_.q_dim, false);
  layer.k = Linear::make(builder, at, names_.k, dims_.h, dims_.kv_dim, false);
  layer.v = Linear::make(builder, at, names_.v, dims_.h, dims_.kv_dim, false);
  layer.o = Linear::make(builder, at, names_.o, dims_.q_dim, dims_.h, false);
}

// Attention.forward.
Tensor TorchtitanDecoder::attend_to(const Layer& layer, const Tensor& x) const {
  const Tape::Scope scope(x.tape(), names_.attention);
  Tensor xq = layer.q.forward(x);
  Tensor xk = layer.k.forward(x);
  Tensor xv = layer.v.forward(x);
  xq = view(xq, {dims_.b, dims_.s, dims_.nh, dims_.d});
  xk = view(xk, {dims_.b, dims_.s, dims_.nkv, dims_.d});
  xv = view(xv, {dims_.b, dims_.s, dims_.nkv, dims_.d});
  if (qk_norm_) {
    xq = layer.q_norm.forward(xq);
    xk = layer.k_norm.forward(xk);
  }
  {
    Heads turned = complex_rope_ ? rotate_complex(xq, xk) : rotate_halves(xq, xk);
    xq = std::move(turned.q);
    xk = std::move(turned.k);
  }
  const Tensor keys = repeat_heads(xk, dims_.nh);
  const Tensor values = repeat_heads(xv, dims_.nh);
  xq = transpose(xq, 1, 2);
  xk = transpose(keys, 1, 2);
  xv = transpose(values, 1, 2);
  Tensor output = sdpa(xq, xk, xv);
  output = view(output, {dims_.b, dims_.s, dims_.q_dim});
  return own_part(layer.o.forward(output));
}

}  // namespace ledger
