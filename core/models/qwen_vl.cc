#include "core/models/qwen_vl.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ledger {
namespace {

constexpr const char* kLanguageModel = "model.language_model";

// x.repeat(n) and x.repeat_interleave(n) of a line of numbers.
Tensor repeated_whole(const Tensor& x, Dim n) {
  const Tensor rows = contiguous(expand(unsqueeze(x, 0), {n, x.dim(0)}));
  return reshape(rows, {{times(n.size, x.dim(0).size), Sym::none}});
}
Tensor repeated_each(const Tensor& x, Dim n) {
  const Tensor columns = contiguous(expand(unsqueeze(x, 1), {x.dim(0), n}));
  return reshape(columns, {{times(n.size, x.dim(0).size), Sym::none}});
}

}  // namespace

QwenVl::QwenVl(Tape& tape, const ModelConfig& config, const ModelOptions& options)
    : config_(config),
      options_(options),
      grid_(image_grid(config.vision, options.image_height, options.image_width)),
      images_{times(options.batch, options.images), Sym::images} {
  ModuleBuilder builder(tape, options.weights, options.linears, options.units);
  visual_.make(builder, config.vision, options, images_.size, {config.hidden_size, Sym::h});
  text_ = std::make_unique<Llama>(builder, decoder_behind_images(config), options_behind_images(config, options),
                                  kLanguageModel);
  trainable_ = builder.take_trainable();
}

Tensor QwenVl::make_inputs(Tape& tape) {
  const auto layout = static_cast<std::int64_t>((options_.images << 32) + grid_.tokens);
  const DecoderDims& dims = text_->dims();
  Tensor ids = load_token_ids(tape, dims.b, dims.s, "input_ids", {0, {layout, image_token()}});
  pixels_ = load_pixels(tape, {visual_.patches(), visual_.pixels_of_patch()});
  const Tape::In in(tape, Category::inputs);
  {
    const Tape::Scope scope(tape, "image_grid_thw");
    image_grid_thw_ = bookkeeping(tape, {images_, {3, Sym::none}}, DType::i64);
  }
  const Tape::Scope scope(tape, "mm_token_type_ids");
  mm_token_type_ids_ = to(equal(ids, image_token()), DType::i64);
  return ids;
}

// get_image_features, and the list of images joined again.
Tensor QwenVl::image_features(const Tensor& pixels) const {
  Tensor embeds;
  {
    const Tensor pixel_values = to(pixels, visual_.pixel_dtype());
    embeds = visual_.forward(pixel_values);
  }
  const Tape::Scope scope(pixels.tape(), "model");
  return join_images(view(embeds, {images_, {grid_.tokens, Sym::none}, embeds.dim(1)}));
}

// fully_shard's root casts the pixels, too, and keeps them until the whole pass is over.
Tensor QwenVl::forward(const Tensor& ids) {
  Tensor seen = pixels_;
  return as_root(options_.units, [&] {
    if (options_.units != nullptr) seen = to(pixels_, visual_.pixel_dtype());
    return forward_with_loss(ids, seen);
  });
}

Tensor QwenVl::forward_with_loss(const Tensor& ids, const Tensor& pixels) {
  const Tensor hidden = decode(ids, pixels);
  const Tape::In in(ids.tape(), Category::logits);
  Tensor loss = text_->loss_of(hidden, ids);
  if (options_.keep_outputs) outputs_ = text_->outputs();
  text_->replace_outputs(Tensor());
  return loss;
}

// Qwen2VLModel.forward, whose names live until it returns.
Tensor QwenVl::decode(const Tensor& ids, const Tensor& pixels) {
  Tensor inputs_embeds = text_->embed(ids);
  Tensor image_embeds = image_features(pixels);
  image_embeds = to(image_embeds, inputs_embeds.dtype());
  Tensor image_mask, video_mask, position_ids;
  {
    const Tape::Scope scope(ids.tape(), "model");
    image_mask = equal(ids, image_token());
    video_mask = equal(ids, -1);  // another id, which no text here has
    { const Tensor n_image_tokens = count_true(image_mask); }
    { const Tensor n_video_tokens = count_true(video_mask); }
    image_mask = unsqueeze(image_mask, -1);
    inputs_embeds = masked_scatter(inputs_embeds, image_mask, image_embeds);
    position_ids = rope_index(ids.tape());
  }
  return text_->run_layers(inputs_embeds, nullptr, position_ids);
}

// Qwen2VLModel.get_rope_index: [3, b, s].
Tensor QwenVl::rope_index(Tape& tape) {
  const DecoderDims& dims = text_->dims();
  const Tape::NoGrad no_grad(tape);
  Tensor position_ids;
  {
    const Tape::Scope scope(tape, "position_ids");
    const Tape::In in(tape, Category::inputs);
    position_ids = zeros(tape, {{3, Sym::none}, dims.b, dims.s}, DType::i64);
    for (std::uint64_t row = 0; row < dims.b.size; ++row) {
      const Tensor positions = row_positions(tape);
      copy_into(view(slice(position_ids, 1, row, kOne), positions.shape()), positions);
    }
  }
  const Tape::Scope scope(tape, "rope_deltas");
  const Tape::In in(tape, Category::buffers);
  rope_deltas_ = bookkeeping(tape, {dims.b, kOne}, DType::i64);
  return position_ids;
}

// Of one sequence, [3, s]: a token of text, an image, ... and text to the end.
Tensor QwenVl::row_positions(Tape& tape) const {
  const Dim s = text_->dims().s, three{3, Sym::none};
  const std::uint64_t step = std::max(grid_.rows, grid_.columns) / config_.vision.merge_size;
  std::vector<Tensor> parts;
  std::uint64_t position = 0, seen = 0;
  const auto text = [&](std::uint64_t length) {
    const Dim count{length, Sym::none};
    parts.push_back(expand(unsqueeze(arange(tape, count), 0), {three, count}) + static_cast<double>(position));
    position += length;
    seen += length;
  };
  for (std::uint64_t image = 0; image < options_.images; ++image) {
    text(1);
    parts.push_back(image_positions(tape, static_cast<double>(position)));
    position += step;
    seen += grid_.tokens;
  }
  if (seen < s.size) text(s.size - seen);
  return cat(parts, 1, s);
}

// Qwen2VLModel.get_vision_position_ids: [3, tokens].
Tensor QwenVl::image_positions(Tape& tape, double start) const {
  const std::uint64_t m = config_.vision.merge_size;
  const Dim rows{grid_.rows / m, Sym::none}, columns{grid_.columns / m, Sym::none};
  Tensor temporal = arange(tape, kOne) * 1.0;  // time_interval
  Tensor width = arange(tape, columns) + start;
  Tensor height = arange(tape, rows) + start;
  width = repeated_whole(width, rows);
  height = repeated_each(height, columns);
  height = clone(height);  // repeat(1)
  temporal = repeated_each(temporal, {grid_.tokens, Sym::none});
  temporal = temporal + start;
  const std::vector<Tensor> lines{unsqueeze(temporal, 0), unsqueeze(height, 0), unsqueeze(width, 0)};
  return cat(lines, 0, {3, Sym::none});
}

std::unique_ptr<Model> build_qwen_vl(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<QwenVl>(tape, config, options);
}

}  // namespace ledger
