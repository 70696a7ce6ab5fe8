#include "core/models/torchtitan.h"

#include "core/models/compiled.h"
#include "core/models/dtensor.h"
#include "core/models/names.h"

namespace ledger {
namespace {

bool norms_heads(const ModelConfig& config) {
  return config.qk_norm || config.style.qk_norm == QkNorm::head;
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

// --- parts
// ------------------------------------------------------------------------------------------------------------------

TorchtitanDecoder::TorchtitanDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options,
                                     const TitanPart& part)
    : config_(&config),
      version_(*titan_version(options.stack)),
      part_(part),
      eps_(config.rms_norm_eps),
      dims_(local_dims(config, options)),
      seat_{options.tp_rank, options.tp},
      s_local_(options.tp == 1 ? dims_.s : Dim{dims_.s.size / options.tp, Sym::none}),
      options_(options),
      names_(names_of(config, options.stack)),
      rope_theta_(config.rope_theta),
      complex_rope_(!norms_heads(config)),
      qk_norm_(norms_heads(config)),
      latent_(config.style.projections == Projections::latent),
      compiles_layers_(options.compile && config.moe.experts == 0) {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  tape.trace().rope = config.rope;
  if (part.embedding) {
    builder.open(kEmbeddingUnit);
    // A matrix like others to its optimizers: it is transformers' Trainer that tells 8-bit ones of embeddings.
    tok_embeddings_ = Embedding::make(builder, "", names_.embed, dims_.V, dims_.h, Parameter::Role::matrix);
  }
  {
    const Tape::Scope scope(tape, "layers.*");
    for (std::uint64_t i = 0; i < part.layers; ++i) {
      builder.open(kFirstLayerUnit + static_cast<UnitId>(i));
      layers_.push_back(make_layer(builder, static_cast<std::size_t>(part.first + i)));
    }
  }
  if (part.head) make_head(builder, config.tie_word_embeddings);
  make_rope_cache(tape);  // init_weights, once to_empty has given the parameters memory
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = config.vocab_size;
  if (options.tp != 1) note_cuts(tape.trace());
}

void TorchtitanDecoder::make_head(ModuleBuilder& builder, bool tied) {
  builder.open(kHeadUnit);
  norm_ = make_norm(builder, "", names_.final_norm, dims_.h, false);  // apply_compile: each layer, nothing else
  if (tied) {
    output_.name = names_.head;
    output_.weight = tok_embeddings_.weight;
  } else {
    output_ = Linear::make(builder, "", names_.head, dims_.h, dims_.V, false);
  }
}

// apply_tp: ColwiseParallel cuts outputs, RowwiseParallel inputs, or an embedding's rows; norms are whole everywhere.
void TorchtitanDecoder::note_cuts(Trace& trace) const {
  struct Matrix {
    const char* module;
    Dim outputs, inputs;  // of this rank
    bool by_inputs;
  };
  const Matrix matrices[] = {{names_.embed, dims_.V, dims_.h, false},  {names_.q, dims_.q_dim, dims_.h, false},
                             {names_.k, dims_.kv_dim, dims_.h, false}, {names_.v, dims_.kv_dim, dims_.h, false},
                             {names_.o, dims_.h, dims_.q_dim, true},   {names_.gate, dims_.ffn, dims_.h, false},
                             {names_.up, dims_.ffn, dims_.h, false},   {names_.down, dims_.h, dims_.ffn, true},
                             {names_.head, dims_.V, dims_.h, false}};
  for (Parameter& parameter : trace.parameters) {
    for (const Matrix& m : matrices) {
      const std::string end = std::string(m.module) + ".weight";
      if (parameter.name != end && !parameter.name.ends_with("." + end)) continue;
      const std::uint64_t cut = times(m.by_inputs ? m.inputs.size : m.outputs.size, seat_.ranks);
      parameter.cut = cut_among(seat_.ranks, seat_.rank, cut, m.by_inputs ? 1 : m.inputs.size);
    }
  }
}

TorchtitanDecoder::Norm TorchtitanDecoder::make_norm(ModuleBuilder& builder, const std::string& path, const char* name,
                                                     Dim size, bool compiled) const {
  const Tape::Scope scope(builder.tape(), name);
  return {name, builder.parameter(path + name, {size}, Parameter::Role::norm), eps_,
          compiled ? TitanNorm::fused : version_.norm};
}

TorchtitanDecoder::Layer TorchtitanDecoder::make_layer(ModuleBuilder& builder, std::size_t index) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const std::string path = "layers." + std::to_string(index) + ".";
  Layer layer;
  {
    const Tape::Scope scope(builder.tape(), names_.attention);
    const std::string at = path + names_.attention + ".";
    latent_ ? make_latent(builder, at, layer) : make_attention(builder, at, layer);
  }
  if (config_->moe.experts != 0 && config_->moe.layers[index]) {
    const UnitId own = kFirstLayerUnit + static_cast<UnitId>(index);
    layer.experts.emplace(*config_, options_, version_.experts);
    layer.experts->make(builder, path, dims_, own, own + static_cast<UnitId>(config_->num_hidden_layers));
  } else {
    layer.feed_forward = FeedForward::make(builder, path, ModelConfig{}, names_, dims_.h, dims_.ffn);
  }
  if (options_.float8 && !options_.compile) {
    FeedForward& feed = layer.feed_forward;
    for (Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &feed.gate, &feed.up, &feed.down})
      linear->product = version_.keeps_float8 ? Product::float8_keeping_weight : Product::float8;
  }
  layer.attention_norm = make_norm(builder, path, names_.input_norm, dims_.h, compiles_layers_);
  layer.ffn_norm = make_norm(builder, path, names_.attention_norm, dims_.h, compiles_layers_);
  return layer;
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
  if (compiles_layers_) {
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
      attended = latent_ ? attend_latent(layer, normed) : attend_to(layer, whole(normed));
    }
    h = x + attended;
  }
  Tensor fed;
  {
    const Tensor normed = layer.ffn_norm.forward(h);
    fed = layer.experts ? layer.experts->forward(normed) : feed(layer, whole(normed));
  }
  return h + fed;
}

// --- the whole
// --------------------------------------------------------------------------------------------------------------

// What a checkpointed layer keeps: nothing, or the results of its list. Of those a compiled one keeps what its graph's
// backward half reads.
Keep TorchtitanDecoder::kept() const {
  if (options_.checkpointing == Checkpointing::full) return {};
  Keep kept{true, true, version_.cudnn_kept, true, compiles_layers_, true, version_.lists_abs};
  kept.batched = false;
  kept.exchanged = latent_;  // DeepSeek V3's list alone
  return kept;
}

// fully_shard's hooks are on the CheckpointWrapper: a recomputation does not run them again.
Tensor TorchtitanDecoder::call_layer(std::size_t index, const Tensor& x) const {
  const Tape::Layer number(x.tape(), static_cast<std::int32_t>(part_.first + index));
  const UnitId unit = kFirstLayerUnit + static_cast<UnitId>(index);
  return in_unit(options_.units, unit, x, [&](const Tensor& input) {
    if (options_.checkpointing == Checkpointing::none) return run_layer(layers_[index], input);
    return x.tape().checkpoint([this, index, input] { return run_layer(layers_[index], input); }, kept());
  });
}

Tensor TorchtitanDecoder::embed(const Tensor& ids) const {
  if (options_.tp == 1) return tok_embeddings_.forward(ids);
  const Tape::Scope scope(ids.tape(), names_.embed);
  return dtensor::embedding(tok_embeddings_.weight, ids, seat_, s_local_);
}

// Transformer.forward up to the output layer, which is of one unit with the norm. What a part lacks is passed over.
Tensor TorchtitanDecoder::decode(const Tensor& input) const {
  ParameterUnits* const units = options_.units;
  Tensor h = input;
  if (part_.embedding) {
    if (units != nullptr) units->before_forward(kEmbeddingUnit, Tensor());
    h = embed(input);
    if (units != nullptr) units->after_forward(kEmbeddingUnit, h);
  }
  {
    const Tape::Scope scope(input.tape(), "layers.*");
    for (std::size_t i = 0; i < layers_.size(); ++i)
      h = call_layer(i, h);
  }
  if (!part_.head) return h;
  if (units != nullptr) h = units->before_forward(kHeadUnit, h);
  h = norm_.forward(h);
  return whole(h);
}

Tensor TorchtitanDecoder::forward_part(const Tensor& input) const {
  ParameterUnits* const units = options_.units;
  if (units != nullptr) units->before_forward(kRootUnit, Tensor());
  Tensor output = decode(input);
  if (part_.head) {
    output = logits(output);
    if (units != nullptr) units->after_forward(kHeadUnit, output);
  }
  if (units != nullptr) units->after_forward(kRootUnit, output);
  return output;
}

Tensor TorchtitanDecoder::logits(const Tensor& hidden) const {
  const Tape::In in(hidden.tape(), Category::logits);
  return output_.forward(hidden);
}

Tensor TorchtitanDecoder::make_inputs(Tape& tape) {
  const Tape::Among ranks(tape, RankGroup::batches);
  const Dim all{options_.seq, Sym::s};
  labels_ = load_token_ids(tape, dims_.b, all, "labels");
  Tensor ids = load_token_ids(tape, dims_.b, all);
  if (options_.cp == 1) return ids;
  labels_ = own_tokens(labels_, 1);
  return own_tokens(ids, 1);
}

// train.py, forward_backward_step up to `del pred`. keep_outputs: until June 2024 the loop held on to the logits, which
// the model widened itself.
Tensor TorchtitanDecoder::forward(const Tensor& ids) {
  if (options_.cp != 1) take_own_places(ids.tape());
  if (options_.units != nullptr) options_.units->before_forward(kRootUnit, Tensor());
  Tensor pred = decode(ids);
  ParameterUnits* const units = options_.units;
  if (options_.loss == Loss::chunked && version_.chunks == TitanChunks::tokens) {
    // One of the unit's modules has not run: the root ends its pass (_force_complete_incomplete_states).
    if (units != nullptr) {
      units->after_forward(kRootUnit, pred);
      units->after_forward(kHeadUnit, pred);
    }
    return loss_by_chunks(pred);
  }
  pred = logits(pred);
  if (units != nullptr) units->after_forward(kHeadUnit, pred);
  if (options_.keep_outputs) {
    const Tape::Scope scope(ids.tape(), names_.head);
    const Tape::In in(ids.tape(), Category::logits);
    pred = to(pred, DType::f32);
    outputs_ = ids.tape().detach(pred);
  }
  if (units != nullptr) units->after_forward(kRootUnit, pred);
  return options_.loss == Loss::chunked ? loss_of_logits_by_chunks(pred) : loss_of(pred, labels_);
}

std::unique_ptr<Model> build_torchtitan(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<TorchtitanDecoder>(tape, config, options, TitanPart{0, config.num_hidden_layers});
}

}  // namespace ledger
