#include "core/models/t5.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "core/models/attention.h"
#include "core/models/feed_forward.h"

namespace ledger {
namespace {

constexpr double kPadding = 0;  // T5's token for padding, with which the decoder starts

// _shift_right.
Tensor shifted_right(const Tensor& labels) {
  Tape& tape = labels.tape();
  const Tape::Scope scope(tape, "decoder_input_ids");
  const Tape::In in(tape, Category::inputs);
  const Tensor shifted = zeros(tape, labels.shape(), DType::i64);
  const Dim fewer{labels.dim(1).size - 1, Sym::none};
  if (fewer.size != 0) {
    const Tensor kept = contiguous(slice(labels, 1, 0, fewer));
    copy_into(slice(shifted, 1, 1, fewer), kept);
  }
  {
    const Tensor start = full(tape, {kOne, kOne}, kPadding, DType::i64);
    copy_into(slice(shifted, 1, 0, kOne), expand(start, {labels.dim(0), kOne}));
  }
  const Tensor ignored = bookkeeping(tape, labels.shape(), DType::boolean);  // == -100, to be filled in place
  return shifted;
}

Dim targets_of(const ModelOptions& o) {
  const bool as_many = o.decoder_seq == 0 || o.decoder_seq == o.seq;
  return as_many ? Dim{o.seq, Sym::s} : Dim{o.decoder_seq, Sym::none};
}

}  // namespace

T5::T5(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config), dims_(dims_of(config, options)), options_(options), targets_(targets_of(options)) {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  shared_ = Embedding::make(builder, "", "shared", dims_.V, dims_.h);
  encoder_ = make_stack(builder, "encoder", shared_.weight, config.num_hidden_layers);
  decoder_ = make_stack(builder, "decoder", shared_.weight, config.t5.decoder_layers);
  lm_head_.name = "lm_head";
  lm_head_.weight = shared_.weight;
  trainable_ = builder.take_trainable();
  tape.trace().vocab_size = config.vocab_size;
}

T5::Stack T5::make_stack(ModuleBuilder& builder, const char* name, const Tensor& shared, std::uint64_t layers) {
  const Tape::Scope scope(builder.tape(), name);
  Stack stack;
  stack.name = name;
  stack.decodes = std::string(name) == "decoder";
  stack.embed_tokens = {"embed_tokens", shared};
  {
    const Tape::Scope blocks(builder.tape(), "block.*");
    for (std::size_t i = 0; i < layers; ++i)
      stack.blocks.push_back(
          make_block(builder, std::string(name) + ".block." + std::to_string(i) + ".", i, stack.decodes));
  }
  stack.final_norm =
      Norm::make(builder, std::string(name) + ".", "final_layer_norm", NormKind::rms_t5, dims_.h, config_.rms_norm_eps);
  return stack;
}

T5::Block T5::make_block(ModuleBuilder& builder, const std::string& path, std::size_t index, bool decodes) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  using Over = T5Attention::Over;
  Block block;
  block.self = T5Attention::make(builder, path, Over::itself, config_, dims_, index == 0);
  block.self.both_ways = !decodes;
  if (decodes) {
    block.cross = T5Attention::make(builder, path, Over::encoder, config_, dims_, false);
    block.cross->checkpointed = options_.checkpointing != Checkpointing::none;
  }
  const Tape::Scope scope(builder.tape(), decodes ? "layer.2" : "layer.1");
  block.feed = make_feed(builder, path + (decodes ? "layer.2." : "layer.1."));
  return block;
}

T5::Feed T5::make_feed(ModuleBuilder& builder, const std::string& path) const {
  Feed feed;
  {
    const Tape::Scope scope(builder.tape(), "DenseReluDense");
    const std::string at = path + "DenseReluDense.";
    const bool gated = config_.style.feed == ledger::Feed::gated;
    feed.wi = Linear::make(builder, at, gated ? "wi_0" : "wi", dims_.h, dims_.ffn, false);
    if (gated) feed.wi_1 = Linear::make(builder, at, "wi_1", dims_.h, dims_.ffn, false);
    // _keep_in_fp32_modules: in fp32 where the others are fp16, and bitsandbytes leaves it alone.
    feed.wo = Linear::make(builder, at, "wo", dims_.ffn, dims_.h, false, Product::linear, Linear::Base::unquantised);
  }
  feed.norm = Norm::make(builder, path, "layer_norm", NormKind::rms_t5, dims_.h, config_.rms_norm_eps);
  return feed;
}

Tensor T5::make_inputs(Tape& tape) {
  Tensor ids = load_token_ids(tape, dims_.b, dims_.s);
  labels_ = load_token_ids(tape, dims_.b, targets_, "labels");
  return ids;
}

void T5::replace_outputs(Tensor outputs, Tensor of_images) {
  if (!outputs) encoder_output_.reset();
  Model::replace_outputs(std::move(outputs), std::move(of_images));
}

Tensor T5::drop(const Tensor& x) const {
  const Tape::Scope scope(x.tape(), "dropout");
  return dropout(x, config_.residual_dropout);
}

// T5DenseActDense and T5DenseGatedActDense.
Tensor T5::dense(const Feed& feed, const Tensor& input) const {
  const Tape::Scope scope(input.tape(), "DenseReluDense");
  Tensor hidden, factor;
  hidden = activate(config_.act, feed.wi.forward(input));
  Tensor gelu;
  if (feed.wi_1.weight || feed.wi_1.quantised || feed.wi_1.int8) {
    gelu = std::move(hidden);
    factor = feed.wi_1.forward(input);
    hidden = gelu * factor;
  }
  hidden = drop(hidden);
  hidden = to(hidden, feed.wo.weight.dtype());
  return feed.wo.forward(hidden);
}

Tensor T5::feed_forward(const Feed& feed, const Tensor& hidden) const {
  Tensor forwarded = feed.norm.forward(hidden);
  forwarded = dense(feed, forwarded);
  return hidden + drop(forwarded);
}

// T5Block. What it returns beside the hidden states are the biases, for the next one.
CheckpointOutputs T5::forward_block(const Block& block, const Tensor& input, const Context& context) const {
  Tensor bias = context.bias, cross_bias = context.cross_bias;
  const Tensor none;
  const Tensor attended = block.self.forward(input, context.mask, none, bias);
  Tensor crossed = attended;
  if (block.cross) crossed = block.cross->forward(attended, none, context.encoded, cross_bias);
  const Tape::Scope scope(input.tape(), block.cross ? "layer.2" : "layer.1");
  Tensor output = feed_forward(block.feed, crossed);
  return {std::move(output), std::move(bias), std::move(cross_bias)};
}

CheckpointOutputs T5::run_block(const Block& block, const Tensor& hidden, const Context& context) const {
  if (options_.checkpointing == Checkpointing::none) return forward_block(block, hidden, context);
  const auto region = [this, &block, hidden, context] { return forward_block(block, hidden, context); };
  return hidden.tape().checkpoint_many(region);
}

Tensor T5::run_stack(const Stack& stack, const Tensor& ids, const Tensor& encoded) const {
  Tape& tape = ids.tape();
  const Tape::Scope scope(tape, stack.name);
  const Tensor inputs_embeds = stack.embed_tokens.forward(ids);
  if (options_.input_requires_grad && !inputs_embeds.requires_grad()) tape.require_grad(inputs_embeds);
  Context context;
  const Dim s = ids.dim(1);
  if (stack.decodes) context.mask = make_mask(Attention::eager, tape, {.s = s, .keys = s}, inputs_embeds.dtype());
  context.encoded = encoded;
  Tensor hidden = drop(inputs_embeds);
  {
    const Tape::Scope blocks(tape, "block.*");
    for (std::size_t i = 0; i < stack.blocks.size(); ++i) {
      const Tape::Layer number(tape, static_cast<std::int32_t>(i));
      CheckpointOutputs outputs = run_block(stack.blocks[i], hidden, context);
      hidden = std::move(outputs[0]);
      context.bias = std::move(outputs[1]);
      context.cross_bias = std::move(outputs[2]);
    }
  }
  const Tensor layer_outputs = hidden;  // T5Stack.forward's name for it
  hidden = stack.final_norm.forward(hidden);
  hidden = drop(hidden);
  return hidden;
}

// T5ForConditionalGeneration.forward: CrossEntropyLoss of the logits as they are, nothing shifted.
Tensor T5::forward(const Tensor& ids) {
  Tape& tape = ids.tape();
  const Tensor encoded = run_stack(encoder_, ids, Tensor());
  const Tensor decoder_ids = shifted_right(labels_);
  Tensor sequence = run_stack(decoder_, decoder_ids, encoded);
  const Tape::In in(tape, Category::logits);
  if (config_.t5.scales_outputs) sequence = sequence * (1 / std::sqrt(static_cast<double>(config_.hidden_size)));
  const Tensor logits = lm_head_.forward(sequence);
  if (options_.keep_outputs) {
    encoder_output_ = tape.detach(encoded);
    outputs_ = tape.detach(logits);
  }
  const Tape::Scope scope(tape, "loss");
  const Dim tokens{times(dims_.b.size, targets_.size), Sym::tokens};
  const Tensor targets = view(labels_, {tokens});
  return nll_loss(log_softmax(view(logits, {tokens, dims_.V})), targets);
}

std::unique_ptr<Model> build_t5(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<T5>(tape, config, options);
}

}  // namespace ledger
