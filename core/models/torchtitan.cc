#include "core/models/torchtitan.h"

#include "core/models/attention.h"
#include "core/models/compiled.h"
#include "core/models/dtensor.h"
#include "core/models/names.h"
#include "core/models/rotary.h"

namespace ledger {
namespace {

// The stack, its norm, cuDNN first, cuDNN kept, ends in the root, compiles the loss, models Qwen 3.
constexpr TitanVersion kVersions[] = {
    {Stack::torchtitan, TitanNorm::fused, true, true, false, true, true},
    {Stack::torchtitan_0_2_0, TitanNorm::fused, true, false, false, true, true},
    {Stack::torchtitan_0_1, TitanNorm::written_out, false, false, true, true, false},
    {Stack::torchtitan_0_0_2, TitanNorm::own, false, false, true, false, false},
};

constexpr std::uint64_t kCudnnHead = 128;  // sdp_utils.cpp, check_cudnn_tensor_shapes: heads up to this, by eights

// repeat_kv: [b, s, nkv, d] at all `heads` query heads.
Tensor repeat_heads(const Tensor& x, Dim heads) {
  const Dim groups = x.dim(2), each{heads.size / groups.size, Sym::none};
  if (each.size == 1) return x;
  const Tensor copies = expand(unsqueeze(x, 3), {x.dim(0), x.dim(1), groups, each, x.dim(3)});
  return reshape(copies, {x.dim(0), x.dim(1), heads, x.dim(3)});
}

// What one of `tp` x `cp` ranks has: apply_tp cuts heads, width and vocabulary, context_parallel() the sequence.
DecoderDims local_dims(const ModelConfig& config, const ModelOptions& options) {
  DecoderDims dims = dims_of(config, options);
  if (options.cp != 1) dims.s = {options.seq / options.cp, Sym::none};
  if (options.tp == 1) return dims;
  for (Dim* dim : {&dims.nh, &dims.nkv, &dims.q_dim, &dims.kv_dim, &dims.ffn, &dims.V})
    *dim = {dim->size / options.tp, Sym::none};
  return dims;
}

}  // namespace

const TitanVersion* titan_version(Stack stack) {
  for (const TitanVersion& version : kVersions) {
    if (version.stack == stack) return &version;
  }
  return nullptr;
}

// --- parts
// ------------------------------------------------------------------------------------------------------------------

TorchtitanDecoder::TorchtitanDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : version_(*titan_version(options.stack)),
      eps_(config.rms_norm_eps),
      dims_(local_dims(config, options)),
      s_local_(options.tp == 1 ? dims_.s : Dim{dims_.s.size / options.tp, Sym::none}),
      options_(options),
      names_(names_of(config, options.stack)),
      rope_theta_(config.rope_theta),
      complex_rope_(!config.qk_norm),
      qk_norm_(config.qk_norm) {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  tape.trace().rope = config.rope;
  builder.open(kEmbeddingUnit);
  tok_embeddings_ = Embedding::make(builder, "", names_.embed, dims_.V, dims_.h);
  {
    const Tape::Scope scope(tape, "layers.*");
    for (std::size_t i = 0; i < config.num_hidden_layers; ++i) {
      builder.open(kFirstLayerUnit + static_cast<UnitId>(i));
      layers_.push_back(make_layer(builder, i));
    }
  }
  builder.open(kHeadUnit);
  norm_ = make_norm(builder, "", names_.final_norm, dims_.h);
  if (config.tie_word_embeddings) {
    output_.name = names_.head;
    output_.weight = tok_embeddings_.weight;
  } else {
    output_ = Linear::make(builder, "", names_.head, dims_.h, dims_.V, false);
  }
  make_rope_cache(tape);  // init_weights, once to_empty has given the parameters memory
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = dims_.V.size;
}

TorchtitanDecoder::Norm TorchtitanDecoder::make_norm(ModuleBuilder& builder, const std::string& path, const char* name,
                                                     Dim size) const {
  const Tape::Scope scope(builder.tape(), name);
  return {name, builder.parameter(path + name, {size}, Parameter::Role::norm), eps_,
          options_.compile ? TitanNorm::fused : version_.norm};
}

TorchtitanDecoder::Layer TorchtitanDecoder::make_layer(ModuleBuilder& builder, std::size_t index) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const std::string path = "layers." + std::to_string(index) + ".";
  Layer layer;
  {
    const Tape::Scope scope(builder.tape(), names_.attention);
    const std::string at = path + names_.attention + ".";
    if (qk_norm_) layer.q_norm = make_norm(builder, at, names_.q_norm, dims_.d);
    if (qk_norm_) layer.k_norm = make_norm(builder, at, names_.k_norm, dims_.d);
    layer.q = Linear::make(builder, at, names_.q, dims_.h, dims_.q_dim, false);
    layer.k = Linear::make(builder, at, names_.k, dims_.h, dims_.kv_dim, false);
    layer.v = Linear::make(builder, at, names_.v, dims_.h, dims_.kv_dim, false);
    layer.o = Linear::make(builder, at, names_.o, dims_.q_dim, dims_.h, false);
  }
  layer.feed_forward = FeedForward::make(builder, path, ModelConfig{}, names_, dims_.h, dims_.ffn);
  layer.attention_norm = make_norm(builder, path, names_.input_norm, dims_.h);
  layer.ffn_norm = make_norm(builder, path, names_.attention_norm, dims_.h);
  return layer;
}

// precompute_freqs_cis: e^(i position frequency); precompute_rope_cache: cosine and sine side by side, each for both
// halves of a head. For as many positions as a sequence has: max_seq_len is training.seq_len.
void TorchtitanDecoder::make_rope_cache(Tape& tape) {
  const Tape::Scope scope(tape, complex_rope_ ? "freqs_cis" : "rope_cache");
  const Tape::In in(tape, Category::buffers);
  Tensor frequencies = tape.empty(OpKind::load_buffer, {dims_.half_d}, DType::f32);
  tape.run(OpKind::load_buffer, {}, {&frequencies}, {rope_theta_, {0, 0}});
  Tensor angles;
  {
    const Tensor index = to(arange(tape, dims_.s), DType::f32);
    angles = view(index, {dims_.s, kOne}) * view(frequencies, {kOne, dims_.half_d});
  }
  if (complex_rope_) {
    rope_cache_ = polar(angles);
    return;
  }
  angles = cat(angles, angles, -1, Sym::d);
  const Tensor cosine = cos(angles), sine = sin(angles);
  rope_cache_ = cat(cosine, sine, -1);
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
  return attend(chosen ? Attention::cudnn : options_.attention, q, k, v, Tensor()).output;
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

// PrepareModuleInput, and the head's ColwiseParallel: what a module reads is the whole sequence.
Tensor TorchtitanDecoder::whole(const Tensor& x) const {
  return options_.tp == 1 ? x : dtensor::gather_sequence(x, dims_.s);
}

// RowwiseParallel: sums over the ranks, of which each keeps its tokens.
Tensor TorchtitanDecoder::own_part(const Tensor& x) const {
  return options_.tp == 1 ? x : dtensor::scatter_sums(x, s_local_);
}

// FeedForward.forward.
Tensor TorchtitanDecoder::feed(const Layer& layer, const Tensor& x) const {
  const FeedForward& m = layer.feed_forward;
  const Tape::Scope scope(x.tape(), m.name);
  Tensor hidden;
  if (options_.compile) {
    const Tensor gate = m.gate.forward(x);
    const Tensor up = m.up.forward(x);
    hidden = compiled::swiglu(gate, up);
  } else {
    hidden = silu(m.gate.forward(x));
    hidden = hidden * m.up.forward(x);
  }
  return own_part(m.down.forward(hidden));
}

// TransformerBlock.forward. What a module is called with lives as long as the call, beside what is made of it.
Tensor TorchtitanDecoder::run_layer(const Layer& layer, const Tensor& x) const {
  Tensor h;
  {
    Tensor attended;
    {
      const Tensor normed = layer.attention_norm.forward(x);
      attended = attend_to(layer, whole(normed));
    }
    h = x + attended;
  }
  Tensor fed;
  {
    const Tensor normed = layer.ffn_norm.forward(h);
    fed = feed(layer, whole(normed));
  }
  return h + fed;
}

// --- the whole
// --------------------------------------------------------------------------------------------------------------

// What a checkpointed layer keeps: nothing, or the results of its list. Of those a compiled one keeps what its graph's
// backward half reads.
Keep TorchtitanDecoder::kept() const {
  if (options_.checkpointing == Checkpointing::full) return {};
  return {true, true, version_.cudnn_kept, true, options_.compile};
}

// fully_shard's hooks are on the CheckpointWrapper: a recomputation does not run them again.
Tensor TorchtitanDecoder::call_layer(std::size_t index, const Tensor& x) const {
  const Tape::Layer number(x.tape(), static_cast<std::int32_t>(index));
  const UnitId unit = kFirstLayerUnit + static_cast<UnitId>(index);
  ParameterUnits* const units = options_.units;
  const Tensor input = units != nullptr ? units->before_forward(unit, x) : x;
  Tensor output;
  if (options_.checkpointing == Checkpointing::none) {
    output = run_layer(layers_[index], input);
  } else {
    output = x.tape().checkpoint([this, index, input] { return run_layer(layers_[index], input); }, kept());
  }
  if (units != nullptr) units->after_forward(unit, output);
  return output;
}

// tok_embeddings: with its rows cut among ranks, ids of other ranks' rows are masked, and the sums scattered.
Tensor TorchtitanDecoder::embed(const Tensor& ids) const {
  if (options_.tp == 1) return tok_embeddings_.forward(ids);
  Tensor partial;
  {
    const Tensor masked = clone(ids);
    partial = tok_embeddings_.forward(masked);
  }
  return own_part(partial);
}

// Transformer.forward.
Tensor TorchtitanDecoder::logits(const Tensor& ids) const {
  ParameterUnits* const units = options_.units;
  if (units != nullptr) units->before_forward(kEmbeddingUnit, Tensor());
  Tensor h = embed(ids);
  if (units != nullptr) units->after_forward(kEmbeddingUnit, h);
  {
    const Tape::Scope scope(ids.tape(), "layers.*");
    for (std::size_t i = 0; i < layers_.size(); ++i)
      h = call_layer(i, h);
  }
  if (units != nullptr) h = units->before_forward(kHeadUnit, h);
  h = norm_.forward(h);
  h = whole(h);
  const Tape::In in(ids.tape(), Category::logits);
  Tensor output = output_.forward(h);
  if (units != nullptr) units->after_forward(kHeadUnit, output);
  return output;
}

// loss.py, cross_entropy_loss.
Tensor TorchtitanDecoder::cross_entropy_loss(const Tensor& pred) const {
  const Tape::Scope scope(pred.tape(), "loss");
  const Tape::In in(pred.tape(), Category::logits);
  const Tensor flat = reshape(pred, {tokens_of(pred), dims_.V}), labels = reshape(labels_, {tokens_of(labels_)});
  if (options_.compile && version_.compiles_loss && options_.tp == 1) return compiled::cross_entropy(flat, labels);
  const Tensor wide = to(flat, DType::f32);
  if (options_.tp > 1) return dtensor::cross_entropy(wide, labels);
  return nll_loss(log_softmax(wide), labels, Reduction::mean);
}

Tensor TorchtitanDecoder::make_inputs(Tape& tape) {
  labels_ = load_token_ids(tape, dims_.b, dims_.s, "labels");
  return load_token_ids(tape, dims_.b, dims_.s);
}

// train.py, forward_backward_step up to `del pred`. keep_outputs: until June 2024 the loop held on to the logits, which
// the model widened itself.
Tensor TorchtitanDecoder::forward(const Tensor& ids) {
  if (options_.units != nullptr) options_.units->before_forward(kRootUnit, Tensor());
  Tensor pred = logits(ids);
  if (options_.keep_outputs) {
    const Tape::Scope scope(ids.tape(), names_.head);
    const Tape::In in(ids.tape(), Category::logits);
    pred = to(pred, DType::f32);
    outputs_ = ids.tape().detach(pred);
  }
  if (options_.units != nullptr) options_.units->after_forward(kRootUnit, pred);
  return cross_entropy_loss(pred);
}

std::unique_ptr<Model> build_torchtitan(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<TorchtitanDecoder>(tape, config, options);
}

}  // namespace ledger
