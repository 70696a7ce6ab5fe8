#include "core/models/llama.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "core/models/attention.h"
#include "core/models/bloom.h"
#include "core/models/causal_lm_loss.h"
#include "core/models/internlm2.h"
#include "core/models/names.h"

namespace ledger {
namespace {

// transformers models/gemma/modeling_gemma.py, GemmaTextScaledWordEmbedding: a scalar in the weights' dtype.
Tensor scale_buffer(Tape& tape, double value, DType dtype) {
  const Tape::Scope scope(tape, "embed_scale");
  const Tape::In in(tape, Category::buffers);
  Tensor buffer = tape.empty(OpKind::load_constant, Shape{}, dtype);
  tape.run(OpKind::load_constant, {}, {&buffer}, {value, {}});
  return buffer;
}

// The window of every layer, where none sees everything.
std::uint64_t window_of_all(const ModelConfig& c) {
  return std::count(c.full_layers.begin(), c.full_layers.end(), true) == 0 ? c.sliding_window : 0;
}

Attention attention_of(const ModelConfig& c, Attention asked) {
  return writes_attention_out(c) && asked != Attention::flash ? Attention::eager : asked;
}

// InternLM2, whose code was written beside transformers 4's.
bool has_old_code(const ModelConfig& c) {
  return c.style.projections == Projections::grouped;
}

// Keys and values at all query heads before the kernel: transformers 4's classes.
bool repeats_kv(const ModelConfig& c, const ModelOptions& o) {
  return (o.stack == Stack::hf_4 || has_old_code(c)) && o.attention != Attention::flash;
}

// What sliding or chunked layers see. Chunks are counted from each row's own start, so that their mask has one row for
// each of the batch.
MaskShape local_mask(const ModelConfig& c, const DecoderDims& n) {
  MaskShape shape{.s = n.s, .keys = n.s, .window = c.sliding_window, .chunk = c.attention_chunk};
  if (c.attention_chunk != 0) shape.b = n.b;
  return shape;
}

// OPT's positions: how many tokens of the attention mask came before.
Tensor counted_positions(const Tensor& mask) {
  Tensor positions = cumsum_last(mask);
  positions = positions * mask;
  positions = positions + -1.0;
  return to(positions, DType::i64);
}

// Some layers look through a window and some at everything: transformers then makes a mask of each kind.
bool mixes_windows(const ModelConfig& c) {
  if (c.attention_chunk != 0) return true;
  const auto full = std::count(c.full_layers.begin(), c.full_layers.end(), true);
  return full != 0 && full != static_cast<std::ptrdiff_t>(c.full_layers.size());
}

UnitId unit_of(const ModelOptions& options, std::size_t layer) {
  return kFirstLayerUnit + static_cast<UnitId>(plus(options.units_before, layer));
}

// Liger-Kernel transformers/monkey_patch.py, _patch_rms_norm_module of each family. OLMo 2's last norm is in_place.
Liger liger_of(const ModelConfig& config, const ModelOptions& options) {
  const std::string& type = config.model_type;
  const bool gemma3 = type == "gemma3_text";
  return {
      .on = options.liger, .norms_in_place = type != "gemma2" && !gemma3 && type != "olmo2", .norms_of_heads = gemma3};
}

}  // namespace

Llama::Llama(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config), dims_(dims_of(config, options)), options_(options), names_(names_of(config)) {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units, liger_of(config, options));
  build(builder);
  trainable_ = builder.take_trainable();
}

Llama::Llama(ModuleBuilder& builder, const ModelConfig& config, const ModelOptions& options, const char* base)
    : config_(config), dims_(dims_of(config, options)), options_(options), names_(names_of(config)) {
  names_.base = base;
  build(builder);
}

void Llama::build(ModuleBuilder& builder) {
  Tape& tape = builder.tape();
  const ModelConfig& config = config_;
  const ModelOptions& options = options_;
  {
    const Tape::Scope scope(tape, names_.base);
    const std::string base = std::string(names_.base) + ".";
    builder.open(kEmbeddingUnit);
    embed_tokens_ = Embedding::make(builder, base, names_.embed, dims_.V, dims_.h);
    if (config.style.norm == NormKind::rms_gemma)
      // Quantised models are loaded in bf16; preparing them widens parameters, not buffers.
      embed_scale_ =
          scale_buffer(tape, config.embedding_multiplier, options.linears.quantise ? DType::bf16 : options.weights);
    if (config.style.embedding_norm)
      embedding_norm_ =
          Norm::make(builder, base, names_.embedding_norm, config.style.norm, dims_.h, config.rms_norm_eps);
    if (config.style.position == Position::learned) {
      const Dim rows{plus(config.max_position_embeddings, config.extra_positions), Sym::none};
      positions_ = Embedding::make(builder, base, names_.positions, rows, dims_.h);
    }
    {
      const Tape::Scope layers(tape, "layers.*");
      for (std::size_t i = 0; i < config.num_hidden_layers; ++i) {
        builder.open(unit_of(options, i));
        layers_.push_back(DecoderLayer::make(builder, config, dims_, i));
        layers_.back().self_attn.kind = attention_of(config, options.attention);
        layers_.back().self_attn.layer = i;
        layers_.back().self_attn.repeats_kv = repeats_kv(config, options);
      }
    }
    builder.open(kHeadUnit);
    norm_ = Norm::make(builder, base, names_.final_norm, config.style.norm, dims_.h, config.rms_norm_eps);
    if (config.model_type == "olmo2") norm_.liger_in_place = true;
    if (config.style.position == Position::rotary && !has_old_code(config))
      rotary_emb_ = RotaryEmbedding::make(tape, config, config.rope_theta, true, dims_);
    if (config.rope_local_theta != 0)
      rotary_local_ = RotaryEmbedding::make(tape, config, config.rope_local_theta, false, dims_);
  }
  if (config.tie_word_embeddings) {
    lm_head_.name = names_.head;
    lm_head_.weight = embed_tokens_.weight;
  } else {
    lm_head_ = Linear::make(builder, "", names_.head, dims_.h, dims_.V, config.style.head_bias);
  }
  tape.trace().vocab_size = config.vocab_size;
  tape.trace().rope = config.rope;
}

Tensor Llama::make_inputs(Tape& tape) {
  return load_token_ids(tape, dims_.b, dims_.s);
}

Tensor Llama::run_layer(std::size_t index, const Tensor& hidden, const LayerContext& context, Tensor& weights) const {
  const Tape::Layer number(hidden.tape(), static_cast<std::int32_t>(index));
  const auto layer = [&](const Tensor& input) { return checkpointed_layer(index, input, context, weights); };
  return in_unit(options_.checkpoints_in_units ? options_.units : nullptr, unit_of(options_, index), hidden, layer);
}

Tensor Llama::checkpointed_layer(std::size_t index, const Tensor& hidden, const LayerContext& context,
                                 Tensor& weights) const {
  Tape& tape = hidden.tape();
  // GradientCheckpointingLayer binds every keyword argument, position_ids too, into the function it hands to
  // checkpoint().
  const Checkpointing checkpointing = options_.checkpointing;
  if (checkpointing == Checkpointing::full || checkpointing == Checkpointing::selective) {
    const auto region = [this, index, hidden, context] {
      Tensor beside;
      Tensor output = forward_layer(index, hidden, context, beside);
      return CheckpointOutputs{std::move(output), std::move(beside)};
    };
    const bool selective = checkpointing == Checkpointing::selective;
    CheckpointOutputs outputs = tape.checkpoint_many(region, selective ? kComputeIntensive : Keep{});
    weights = std::move(outputs[1]);
    return std::move(outputs[0]);
  }
  if (checkpointing == Checkpointing::none) return forward_layer(index, hidden, context, weights);
  const auto beside = std::make_shared<Tensor>();
  const auto region = [this, index, context, beside](const Tensor& input) {
    return forward_layer(index, input, context, *beside);
  };
  Tensor output = checkpointing == Checkpointing::offload ? tape.checkpoint_offloaded(region, hidden)
                                                          : tape.checkpoint_reentrant(region, hidden);
  weights = std::move(*beside);
  return output;
}

// The layer's module call, with the hooks of whoever spreads its parameters: GradientCheckpointingLayer checkpoints the
// call, hooks included.
Tensor Llama::forward_layer(std::size_t index, const Tensor& hidden, const LayerContext& context,
                            Tensor& weights) const {
  const auto layer = [&](const Tensor& input) { return layers_[index].forward(input, context, dims_, &weights); };
  return in_unit(options_.checkpoints_in_units ? nullptr : options_.units, unit_of(options_, index), hidden, layer);
}

// The embedding module's output, which enable_input_require_grads() hooks onto.
Tensor Llama::embed(const Tensor& ids) {
  Tape& tape = ids.tape();
  const Tape::Scope scope(tape, names_.base);
  ParameterUnits* const units = options_.units;
  if (units != nullptr) units->before_forward(kEmbeddingUnit, Tensor());
  Tensor embeds = embed_tokens_.forward(ids);
  if (units != nullptr) units->after_forward(kEmbeddingUnit, embeds);
  if (embed_scale_) embeds = embeds * to(embed_scale_, embed_tokens_.weight.dtype());
  if (options_.input_requires_grad && !embeds.requires_grad()) tape.require_grad(embeds);
  return embeds;
}

Tensor Llama::run_layers(Tensor inputs_embeds, const Masks* masks, const Tensor& places) {
  Tape& tape = inputs_embeds.tape();
  const Tape::Scope scope(tape, names_.base);
  const bool multiplied = config_.embedding_multiplier != 0 && !embed_scale_;
  if (multiplied) inputs_embeds = inputs_embeds * config_.embedding_multiplier;  // Granite
  LayerContext context;
  Tensor hidden = embedding_norm_ ? embedding_norm_->forward(inputs_embeds) : inputs_embeds;
  Tensor attention_mask;  // BLOOM and OPT make one where none is given
  const bool biased = config_.style.position == Position::alibi;
  if (biased || config_.extra_positions != 0) attention_mask = ones(tape, {dims_.b, dims_.s}, DType::f32);
  if (biased) {
    context.alibi = make_alibi(attention_mask, dims_.nh, hidden.dtype());
  } else if (attention_mask) {
    context.position_ids = counted_positions(attention_mask);
  } else if (!places) {  // layers are given no others: text_position_ids is None
    const Tape::Scope positions(tape, "position_ids");
    const Tape::In in(tape, Category::inputs);
    Tensor positions_1d = arange(tape, dims_.s);
    if (!has_old_code(config_)) positions_1d = add(positions_1d, 0.0);  // + past_seen_tokens
    context.position_ids = unsqueeze(positions_1d, 0);
  }
  const Dim mask_rows = attention_mask ? dims_.b : Dim{1, Sym::none};
  const Attention kind = attention_of(config_, options_.attention);
  if (masks != nullptr) {
    context.mask = masks->full;
  } else if (!has_old_code(config_)) {
    context.mask =
        make_mask(kind, tape, {.b = mask_rows, .s = dims_.s, .keys = dims_.s, .window = window_of_all(config_)},
                  inputs_embeds.dtype());
  } else if (kind == Attention::eager) {
    context.mask = internlm2_mask(tape, dims_.b, dims_.s, inputs_embeds.dtype());
  }
  if (positions_.weight) {
    const Tensor position_embeds =
        attention_mask ? positions_.forward(context.position_ids + static_cast<double>(config_.extra_positions))
                       : positions_.forward(context.position_ids);
    hidden = inputs_embeds + position_embeds;
  }
  {
    const Tape::Scope drop(tape, "drop");
    hidden = dropout(hidden, config_.embedding_dropout);
  }
  Tensor weights;                // of the last layer that returned any
  LayerContext local = context;  // of sliding layers
  if (masks != nullptr) {
    local.mask = masks->sliding;
  } else if (mixes_windows(config_)) {
    local.mask = make_mask(kind, tape, local_mask(config_, dims_), inputs_embeds.dtype());
  }
  if (rotary_emb_.inv_freq) context.rotary = rotary_emb_.forward(hidden, places ? places : context.position_ids, dims_);
  local.rotary = rotary_local_.inv_freq ? rotary_local_.forward(hidden, local.position_ids, dims_) : context.rotary;
  {
    const Tape::Scope layers(tape, "layers.*");
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const bool full = config_.full_layers.empty() || config_.full_layers[i];
      Tensor beside;
      hidden = run_layer(i, hidden, full ? context : local, beside);
      weights = std::move(beside);
    }
  }
  const Tensor layer_outputs = has_old_code(config_) ? hidden : Tensor();  // InternLM2Model.forward's name for it
  if (options_.units != nullptr) hidden = options_.units->before_forward(kHeadUnit, hidden);
  hidden = norm_.forward(hidden);
  return hidden;
}

Tensor Llama::logits_of(const Tensor& hidden) {
  Tensor logits = lm_head_.forward(alias(hidden));  // hidden[:, slice(0, None), :] takes all of it
  if (options_.units != nullptr) options_.units->after_forward(kHeadUnit, logits);
  if (config_.logits_divisor != 0) logits = logits / config_.logits_divisor;        // Granite
  if (config_.logits_multiplier != 0) logits = logits * config_.logits_multiplier;  // Cohere
  if (config_.logits_softcap == 0) return logits;
  logits = logits / config_.logits_softcap;  // Gemma 2
  logits = tanh(logits);
  logits = logits * config_.logits_softcap;
  return logits;
}

Tensor Llama::full_logits_loss(const Tensor& hidden, const Tensor& ids) {
  Tape& tape = ids.tape();
  Tensor logits = logits_of(hidden);
  const bool old = has_old_code(config_);
  if (old) logits = to(logits, DType::f32);  // under the same name
  if (options_.keep_outputs) outputs_ = tape.detach(logits);
  const Tape::Scope scope(tape, "loss");
  return old || options_.stack == Stack::hf_4 ? shifted_logits_loss(logits, ids) : causal_lm_loss(logits, ids);
}

Tensor Llama::forward(const Tensor& ids) {
  return as_root(options_.units, [&] { return forward_with_loss(ids); });
}

Tensor Llama::forward_with_loss(const Tensor& ids) {
  const Tensor hidden = run_layers(embed(ids));
  return loss_of(hidden, ids);
}

Tensor Llama::loss_of(const Tensor& hidden, const Tensor& ids) {
  const Tape::In in(ids.tape(), Category::logits);
  const HeadLossFunction head_loss = head_loss_of(options_.loss);
  if (head_loss == nullptr) return full_logits_loss(hidden, ids);
  const Tape::Scope scope(ids.tape(), "loss");
  if (ModuleHooks* const hooks = ids.tape().module_hooks()) hooks->read_elsewhere(lm_head_.weight);
  const HeadLoss result = head_loss(hidden, lm_head_.weight, ids);
  if (options_.keep_outputs) outputs_ = result.metric;
  return result.loss;
}

Tensor Llama::next_logits(const Tensor& ids, const Tensor& positions, KvCache& cache, bool last_only) {
  Tape& tape = ids.tape();
  DecoderDims dims = dims_;
  dims.s = ids.dim(1);
  Tensor hidden;
  {
    const Tape::Scope scope(tape, names_.base);
    const Tensor inputs_embeds = embed_tokens_.forward(ids);
    hidden = inputs_embeds;
    LayerContext context;
    context.position_ids = positions;
    context.cache = &cache;
    context.mask = make_mask(options_.attention, tape, cache.mask_for(dims.b, dims.s), hidden.dtype());
    context.rotary = rotary_emb_.forward(hidden, positions, dims);
    {
      const Tape::Scope layers(tape, "layers.*");
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const Tape::Layer number(tape, static_cast<std::int32_t>(i));
        hidden = layers_[i].forward(hidden, context, dims);
      }
    }
    hidden = norm_.forward(hidden);
  }
  const Tape::In in(tape, Category::logits);
  // hidden_states[:, slice(-logits_to_keep, None), :]; logits_to_keep = 0 takes all of it.
  return lm_head_.forward(last_only ? slice(hidden, 1, dims.s.size - 1, {1, Sym::none}) : alias(hidden));
}

void Llama::skip_tokens(KvCache& cache, std::uint64_t seen) {
  Tape& tape = embed_tokens_.weight.tape();
  const Tape::Scope model(tape, names_.base);
  const Tape::Scope layers(tape, "layers.*");
  const Tape::Scope attention(tape, names_.attention);
  cache.skip_to(seen);
}

ModelOptions options_behind_images(const ModelConfig& config, const ModelOptions& options) {
  ModelOptions text = options;
  text.units_before = config.vision.layers;
  return text;
}

ModelConfig decoder_behind_images(const ModelConfig& config) {
  ModelConfig text = config;
  text.model_type = config.text_type;
  text.architecture = Architecture::llama;
  return text;
}

std::unique_ptr<Model> build_llama(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Llama>(tape, config, options);
}

}  // namespace ledger
