#include "core/models/bert.h"

#include <memory>
#include <string>
#include <utility>

#include "core/models/feed_forward.h"

namespace ledger {
namespace {

Tensor int_buffer(Tape& tape, const char* name, Dim size, OpKind op) {
  const Tape::Scope scope(tape, name);
  const Tape::In in(tape, Category::buffers);
  const Tensor buffer = tape.empty(op, {{1, Sym::none}, size}, DType::i64);
  const Tensor row = view(buffer, {size});
  tape.run(op, {}, {&row});
  return buffer;
}

// create_position_ids_from_input_ids: how many tokens came before that are no padding; RoBERTa's begin at 2.
Tensor counted_positions(const Tensor& ids, std::int64_t padding) {
  const Tensor mask = to(not_equal(ids, padding), DType::i32);
  Tensor counted;
  {
    const Tensor sums = ids.tape().empty(OpKind::cumsum, mask.shape(), DType::i64);
    ids.tape().run(OpKind::cumsum, {&mask}, {&sums});
    counted = to(sums, DType::i32);
  }
  counted = add(counted, 0.0);  // + past_key_values_length
  counted = counted * mask;
  counted = to(counted, DType::i64);
  return add(counted, static_cast<double>(padding));
}

// torch.gather(types, 1, positions): [rows, s] int64, zeros.
Tensor gathered(const Tensor& types, const Tensor& positions) {
  Tape& tape = types.tape();
  const Dim rows = positions.dim(0);
  const Tensor all = expand(types, {rows, types.dim(1)});
  const Tensor result = tape.empty(OpKind::gather, positions.shape(), DType::i64);
  tape.run(OpKind::gather, {&all, &positions}, {&result});
  return result;
}

}  // namespace

Bert::Bert(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config),
      dims_(dims_of(config, options)),
      options_(options),
      base_(config.model_type == "roberta" ? "roberta" : "bert"),
      roberta_(config.model_type == "roberta") {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  const Dim places{config.max_position_embeddings, Sym::none};
  {
    const Tape::Scope base(tape, base_);
    builder.open(kEmbeddingUnit);
    {
      const Tape::Scope scope(tape, "embeddings");
      const std::string at = std::string(base_) + ".embeddings.";
      word_embeddings_ = Embedding::make(builder, at, "word_embeddings", dims_.V, dims_.h);
      position_embeddings_ = Embedding::make(builder, at, "position_embeddings", places, dims_.h);
      const Dim types{config.type_vocab_size, Sym::none};
      type_embeddings_ = Embedding::make(builder, at, "token_type_embeddings", types, dims_.h);
      embedding_norm_ = Norm::make(builder, at, "LayerNorm", NormKind::layer, dims_.h, config.rms_norm_eps);
      positions_ = int_buffer(tape, "position_ids", places, OpKind::arange);
      types_ = int_buffer(tape, "token_type_ids", places, OpKind::zeros);
    }
    const Tape::Scope layers(tape, "encoder.layer.*");
    for (std::size_t i = 0; i < config.num_hidden_layers; ++i) {
      builder.open(kFirstLayerUnit + static_cast<UnitId>(i));
      layers_.push_back(make_layer(builder, i));
    }
  }
  builder.open(kHeadUnit);
  const Tape::Scope scope(tape, roberta_ ? "lm_head" : "cls.predictions");
  const std::string head = roberta_ ? "lm_head." : "cls.predictions.";
  const std::string transform = roberta_ ? head : head + "transform.";
  transform_ = Linear::make(builder, transform, "dense", dims_.h, dims_.h, true);
  transform_norm_ = Norm::make(builder, transform, roberta_ ? "layer_norm" : "LayerNorm", NormKind::layer, dims_.h,
                               config.rms_norm_eps);
  decoder_.name = "decoder";
  decoder_.weight = word_embeddings_.weight;
  decoder_.bias = builder.parameter(head + "decoder", {dims_.V}, Parameter::Role::bias, "bias");
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = config.vocab_size;
}

Bert::Layer Bert::make_layer(ModuleBuilder& builder, std::size_t index) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const std::string at = std::string(base_) + ".encoder.layer." + std::to_string(index) + ".";
  const auto norm = [&](const std::string& path) {
    return Norm::make(builder, path, "LayerNorm", NormKind::layer, dims_.h, config_.rms_norm_eps);
  };
  const Dim h = dims_.h;
  Layer layer;
  {
    const Tape::Scope scope(builder.tape(), "attention");
    const std::string self = at + "attention.self.", out = at + "attention.output.";
    layer.query = Linear::make(builder, self, "query", h, dims_.q_dim, true);
    layer.key = Linear::make(builder, self, "key", h, dims_.q_dim, true);
    layer.value = Linear::make(builder, self, "value", h, dims_.q_dim, true);
    layer.attended = Linear::make(builder, out, "dense", dims_.q_dim, h, true);
    layer.attention_norm = norm(out);
  }
  layer.intermediate = Linear::make(builder, at + "intermediate.", "dense", h, dims_.ffn, true);
  layer.output = Linear::make(builder, at + "output.", "dense", dims_.ffn, h, true);
  layer.output_norm = norm(at + "output.");
  return layer;
}

Tensor Bert::make_inputs(Tape& tape) {
  return load_token_ids(tape, dims_.b, dims_.s);
}

Tensor Bert::drop(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), "dropout");
  return dropout(x, config_.residual_dropout);
}

// BertEmbeddings.forward.
Tensor Bert::embed(const Tensor& ids) const {
  Tape& tape = ids.tape();
  const Tape::Scope scope(tape, "embeddings");
  Tensor position_ids, buffered, token_types;
  {
    const Tape::In in(tape, Category::inputs);
    constexpr std::int64_t kPadding = 1;
    position_ids = roberta_ ? counted_positions(ids, kPadding) : slice(positions_, 1, 0, dims_.s);
    buffered = gathered(types_, position_ids);
    token_types = expand(buffered, {dims_.b, dims_.s});
  }
  Tensor words = word_embeddings_.forward(ids);
  if (options_.input_requires_grad && !words.requires_grad()) tape.require_grad(words);
  const Tensor types = type_embeddings_.forward(token_types);
  Tensor embeddings = words + types;
  const Tensor places = position_embeddings_.forward(position_ids);
  embeddings = embeddings + places;
  embeddings = embedding_norm_.forward(embeddings);
  embeddings = drop(embeddings);
  return embeddings;
}

// BertSelfAttention and BertSelfOutput.
Tensor Bert::attend(const Layer& layer, const Tensor& hidden, Tensor& weights) const {
  const Tape::Scope scope(hidden.tape(), "attention");
  const auto heads = [&](const Linear& projection) {
    return transpose(view(projection.forward(hidden), {dims_.b, dims_.s, dims_.nh, dims_.d}), 1, 2);
  };
  Attended attended;
  {
    const Tensor q = heads(layer.query);
    const Tensor k = heads(layer.key);
    const Tensor v = heads(layer.value);
    AttentionOptions options{0, config_.attention_dropout, 0, false, false};
    attended = ledger::attend(options_.attention, q, k, v, Tensor(), options);
    attended.output = contiguous(reshape(attended.output, {dims_.b, dims_.s, dims_.q_dim}));
  }
  weights = std::move(attended.weights);
  Tensor output = layer.attended.forward(attended.output);
  output = drop(output);
  const Tensor sum = output + hidden;
  return layer.attention_norm.forward(sum);
}

// BertIntermediate and BertOutput.
Tensor Bert::feed(const Layer& layer, const Tensor& hidden) const {
  Tensor intermediate = layer.intermediate.forward(hidden);
  intermediate = activate(config_.act, intermediate);
  Tensor output = layer.output.forward(intermediate);
  output = drop(output);
  const Tensor sum = output + hidden;
  return layer.output_norm.forward(sum);
}

Tensor Bert::forward_layer(std::size_t index, const Tensor& hidden) const {
  const UnitId unit = kFirstLayerUnit + static_cast<UnitId>(index);
  const Tensor input = options_.units == nullptr ? hidden : options_.units->before_forward(unit, hidden);
  Tensor weights;  // `self_attention_output, _ = self.attention(...)`
  const Tensor attended = attend(layers_[index], input, weights);
  Tensor output = feed(layers_[index], attended);
  if (options_.units != nullptr) options_.units->after_forward(unit, output);
  return output;
}

Tensor Bert::run_layer(std::size_t index, const Tensor& hidden) {
  Tape& tape = hidden.tape();
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  return checkpointed(
      options_.checkpointing, [this, index](const Tensor& input) { return forward_layer(index, input); }, hidden);
}

Tensor Bert::encode(const Tensor& ids) {
  const Tape::Scope base(ids.tape(), base_);
  ParameterUnits* const units = options_.units;
  if (units != nullptr) units->before_forward(kEmbeddingUnit, Tensor());
  Tensor embedding_output = embed(ids);  // the name lives until BertModel.forward returns
  if (units != nullptr) units->after_forward(kEmbeddingUnit, embedding_output);
  Tensor hidden = embedding_output;
  const Tape::Scope layers(ids.tape(), "encoder.layer.*");
  for (std::size_t i = 0; i < layers_.size(); ++i)
    hidden = run_layer(i, hidden);
  return hidden;
}

// BertLMPredictionHead, RobertaLMHead.
Tensor Bert::head(const Tensor& sequence) const {
  const Tape::Scope scope(sequence.tape(), roberta_ ? "lm_head" : "cls.predictions");
  Tensor hidden = transform_.forward(sequence);
  hidden = activate(roberta_ ? Act::gelu : config_.act, hidden);
  hidden = transform_norm_.forward(hidden);
  hidden = decoder_.forward(hidden);
  return hidden;
}

Tensor Bert::forward(const Tensor& ids) {
  return as_root(options_.units, [&] { return forward_with_loss(ids); });
}

// CrossEntropyLoss of the scores as they are: no copy in fp32, no shift.
Tensor Bert::forward_with_loss(const Tensor& ids) {
  Tape& tape = ids.tape();
  Tensor sequence = encode(ids);
  if (options_.units != nullptr) sequence = options_.units->before_forward(kHeadUnit, sequence);
  const Tape::In in(tape, Category::logits);
  const Tensor scores = head(sequence);
  if (options_.units != nullptr) options_.units->after_forward(kHeadUnit, scores);
  if (options_.keep_outputs) outputs_ = tape.detach(scores);
  const Tape::Scope scope(tape, "loss");
  const Dim tokens{times(dims_.b.size, dims_.s.size), Sym::tokens};
  const Tensor targets = view(ids, {tokens});
  return nll_loss(log_softmax(view(scores, {tokens, dims_.V})), targets);
}

std::unique_ptr<Model> build_bert(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<Bert>(tape, config, options);
}

}  // namespace ledger
