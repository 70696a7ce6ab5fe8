#include "core/models/qwen_vision.h"

#include <optional>
#include <utility>

#include "core/models/rotary.h"

namespace ledger {
namespace {

constexpr const char* kVisual = "model.visual";
constexpr double kTheta = 10000;

// [h, w] of places in a grid, counted along one of its sides, in the order in which squares of m by m are merged.
Tensor square_by_square(const Tensor& places, bool rows, std::uint64_t h, std::uint64_t w, std::uint64_t m) {
  const Dim height{h, Sym::none}, width{w, Sym::none}, side{m, Sym::none};
  const Tensor grid = expand(unsqueeze(places, rows ? 1 : 0), {height, width});
  const Tensor squares = transpose(reshape(grid, {{h / m, Sym::none}, side, {w / m, Sym::none}, side}), 1, 2);
  return reshape(squares, {{times(h, w), Sym::none}});
}

WindowGrid windows_of(const VisionConfig& config, const ImageGrid& grid, bool whole) {
  const std::uint64_t m = config.merge_size;
  return {grid.rows / m, grid.columns / m, whole ? 0 : config.window_side, times(m, m)};
}

bool sees_all(const VisionConfig& config, std::size_t layer) {
  return config.window_side == 0 || config.full_layers[layer];
}

}  // namespace

std::uint64_t attention_calls(const VisionConfig& config, const Recipe& recipe) {
  if (!config.any_size() || recipe.attention == Attention::flash) return 0;
  const ImageGrid grid = image_grid(config, recipe);
  std::uint64_t of_image = 0;
  for (std::size_t i = 0; i < config.layers; ++i)
    of_image = plus(of_image, windows_of(config, grid, sees_all(config, i)).piece_count());
  return times(times(recipe.batch, recipe.images), of_image);
}

void QwenVision::make(ModuleBuilder& builder, const VisionConfig& config, const ModelOptions& options,
                      std::uint64_t images, Dim text_width) {
  Tape& tape = builder.tape();
  config_ = config;
  options_ = options;
  grid_ = image_grid(config, options.image_height, options.image_width);
  images_ = images;
  packed_ = {times(images, grid_.patches()), Sym::packed};
  h_ = {config.hidden_size, Sym::h_v};
  ffn_ = {config.intermediate_size, Sym::ffn_v};
  heads_ = {config.heads, Sym::none};
  d_ = {config.hidden_size / config.heads, Sym::none};
  norm_ = config.window_side != 0 ? NormKind::rms : NormKind::layer;
  const std::string path = std::string(kVisual) + ".";
  const Tape::Scope visual(tape, kVisual);
  {
    const ModuleBuilder::Frozen frozen(builder, options.freeze_vision_tower);
    builder.open(kEmbeddingUnit);
    {
      const Tape::Scope scope(tape, "patch_embed");
      patch_embedding_ = PatchEmbedding::make(builder, path + "patch_embed.", "proj", config, h_, false);
    }
    {
      const Tape::Scope scope(tape, "rotary_pos_emb");
      inv_freq_ = inverse_frequencies(tape, kTheta, {d_.size / 4, Sym::none}, false);
    }
    const Tape::Scope blocks(tape, "blocks.*");
    for (std::size_t i = 0; i < config.layers; ++i) {
      builder.open(kFirstLayerUnit + static_cast<UnitId>(i));
      layers_.push_back(make_layer(builder, i, path + "blocks." + std::to_string(i) + "."));
    }
  }
  builder.open(kRootUnit);
  make_merger(builder, path + "merger.", text_width);
}

QwenVision::Layer QwenVision::make_layer(ModuleBuilder& builder, std::size_t index, const std::string& path) const {
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  Layer layer;
  layer.before = Norm::make(builder, path, "norm1", norm_, h_, config_.norm_eps);
  layer.after = Norm::make(builder, path, "norm2", norm_, h_, config_.norm_eps);
  {
    const Tape::Scope scope(builder.tape(), "attn");
    layer.qkv = Linear::make(builder, path + "attn.", "qkv", h_, {times(3, h_.size), Sym::none}, true);
    layer.proj = Linear::make(builder, path + "attn.", "proj", h_, h_, true);
  }
  layer.mlp = make_mlp(builder, path + "mlp.");
  return layer;
}

FeedForward QwenVision::make_mlp(ModuleBuilder& builder, const std::string& path) const {
  const Tape::Scope scope(builder.tape(), "mlp");
  const bool gated = config_.window_side != 0;
  FeedForward mlp;
  mlp.feed = gated ? Feed::gated : Feed::plain;
  mlp.act = config_.act;
  if (gated) mlp.gate = Linear::make(builder, path, "gate_proj", h_, ffn_, true);
  mlp.up = Linear::make(builder, path, gated ? "up_proj" : "fc1", h_, ffn_, true);
  mlp.down = Linear::make(builder, path, gated ? "down_proj" : "fc2", ffn_, h_, true);
  return mlp;
}

void QwenVision::make_merger(ModuleBuilder& builder, const std::string& path, Dim text_width) {
  const Tape::Scope scope(builder.tape(), "merger");
  const Dim merged{times(h_.size, times(config_.merge_size, config_.merge_size)), Sym::none};
  merger_norm_ = Norm::make(builder, path, "ln_q", norm_, h_, config_.norm_eps);
  merger_in_ = Linear::make(builder, path, "mlp.0", merged, merged, true);
  merger_out_ = Linear::make(builder, path, "mlp.2", merged, text_width, true);
}

Dim QwenVision::pixels_of_patch() const {
  const std::uint64_t square = times(config_.patch_size, config_.patch_size);
  return {times(times(config_.channels, config_.temporal_patch), square), Sym::none};
}

bool QwenVision::whole(std::size_t layer) const {
  return sees_all(config_, layer);
}

WindowGrid QwenVision::grid_of(bool whole) const {
  return windows_of(config_, grid_, whole);
}

std::uint64_t QwenVision::pieces(bool whole) const {
  return times(images_, grid_of(whole).piece_count());
}

// get_vision_position_ids: row and column of every patch, [patches, 2].
Tensor QwenVision::position_ids(Tape& tape) const {
  const std::uint64_t h = grid_.rows, w = grid_.columns, m = config_.merge_size;
  std::vector<Tensor> of_images;
  Tensor hpos_ids, wpos_ids;
  for (std::uint64_t i = 0; i < images_; ++i) {
    hpos_ids = arange(tape, {h, Sym::none});
    hpos_ids = square_by_square(hpos_ids, true, h, w, m);
    wpos_ids = arange(tape, {w, Sym::none});
    wpos_ids = square_by_square(wpos_ids, false, h, w, m);
    const Tensor both = cat(unsqueeze(hpos_ids, -1), unsqueeze(wpos_ids, -1), 1);
    of_images.push_back(clone(both));  // repeat(t, 1)
  }
  return cat(of_images, 0, packed_);
}

// x [patches, n] with the tokens of a window together: x.reshape(tokens, m * m, n)[window_index].
Tensor QwenVision::in_windows(const Tensor& x) const {
  const WindowGrid windows = grid_of(false);
  const Dim tokens{x.dim(0).size / windows.unit, Sym::none};
  const Tensor by_token = reshape(x, {tokens, {windows.unit, Sym::none}, x.dim(1)});
  const Tensor order = window_order(x.tape(), tokens, windows, WindowOrder::together);
  return reshape(index_rows(by_token, order), x.shape());
}

Tensor QwenVision::embed(const Tensor& pixels) const {
  Tape& tape = pixels.tape();
  const Tape::Scope scope(tape, "patch_embed");
  const Dim side{config_.patch_size, Sym::none};
  const Tensor patches =
      view(pixels, {packed_, {config_.channels, Sym::none}, {config_.temporal_patch, Sym::none}, side, side});
  const Tensor features = view(patch_embedding_.forward(to(patches, pixel_dtype())), {packed_, h_});
  if (options_.input_requires_grad && !features.requires_grad()) tape.require_grad(features);
  return features;
}

// Python's names live until this returns.
Tensor QwenVision::forward(const Tensor& pixels) const {
  Tape& tape = pixels.tape();
  const Tape::Scope visual(tape, kVisual);
  const bool windows = config_.window_side != 0;
  const Tensor positions = position_ids(tape);
  Context full, windowed;
  full.ends = bookkeeping(tape, {{plus(images_, 1), Sym::none}}, DType::i32);  // cu_seqlens
  if (windows) windowed.ends = bookkeeping(tape, {{plus(pieces(false), 1), Sym::none}}, DType::i32);
  Tensor hidden = embed(pixels);
  if (windows) hidden = in_windows(hidden);
  Tensor rotary_pos_emb = view(unsqueeze(positions, -1) * inv_freq_, {packed_, {d_.size / 2, Sym::none}});
  if (windows) rotary_pos_emb = in_windows(rotary_pos_emb);
  const Tensor emb = cat(rotary_pos_emb, rotary_pos_emb, -1);
  full.cos = windowed.cos = cos(emb);
  full.sin = windowed.sin = sin(emb);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    hidden = run_layer(i, hidden, whole(i) ? full : windowed);
  Tensor merged = merge(hidden);
  if (!windows) return merged;
  const Tensor order = window_order(tape, merged.dim(0), grid_of(false), WindowOrder::back);
  return index_rows(merged, order);
}

Tensor QwenVision::run_layer(std::size_t index, const Tensor& hidden, const Context& context) const {
  Tape& tape = hidden.tape();
  const Tape::Scope scope(tape, "blocks.*");
  const Tape::Layer number(tape, static_cast<std::int32_t>(index));
  return checkpointed(
      options_.checkpointing,
      [this, index, context](const Tensor& input) { return forward_layer(index, input, context); }, hidden);
}

// fully_shard casts what a unit is called with (MixedPrecisionPolicy.cast_forward_inputs), but not when it recomputes.
QwenVision::Context QwenVision::as_seen(const Context& context, DType dtype) const {
  if (context.cos.tape().in_backward()) return context;
  Context seen = context;
  seen.cos = to(context.cos, dtype);
  seen.sin = to(context.sin, dtype);
  return seen;
}

Tensor QwenVision::forward_layer(std::size_t index, const Tensor& hidden, const Context& context) const {
  ParameterUnits* const units = options_.units;
  if (units == nullptr) return forward_block(layers_[index], index, hidden, context);
  const UnitId unit = kFirstLayerUnit + static_cast<UnitId>(index);
  const Tensor input = units->before_forward(unit, hidden);
  Tensor output = forward_block(layers_[index], index, input, as_seen(context, input.dtype()));
  units->after_forward(unit, output);
  return output;
}

Tensor QwenVision::forward_block(const Layer& layer, std::size_t index, const Tensor& hidden,
                                 const Context& context) const {
  Tensor x = attend(layer, index, layer.before.forward(hidden), context);
  x = hidden + x;
  const Tensor fed = layer.mlp.forward(layer.after.forward(x));
  return x + fed;
}

// Each piece of the sequence by a call of its own: VisionAttention.forward without flash attention.
Tensor QwenVision::in_pieces(std::size_t index, const Tensor& q, const Tensor& k, const Tensor& v) const {
  const std::vector<std::uint64_t> of_image = grid_of(whole(index)).pieces();
  std::vector<Dim> lengths;
  for (std::uint64_t i = 0; i < images_; ++i) {
    for (const std::uint64_t length : of_image)
      lengths.push_back({length, config_.window_side == 0 ? Sym::patches : Sym::none});
  }
  const Tensor counts = bookkeeping(q.tape(), {{lengths.size(), Sym::none}}, DType::i32);
  const std::vector<Tensor> queries = split_all(q, 2, lengths);
  const std::vector<Tensor> keys = split_all(k, 2, lengths);
  const std::vector<Tensor> values = split_all(v, 2, lengths);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    Attended attended = ledger::attend(options_.attention, queries[i], keys[i], values[i], Tensor(),
                                       {0, config_.attention_dropout, 0, true, false});
    outputs.push_back(std::move(attended.output));
  }
  const Tensor joined = cat_all(outputs, 1, packed_);
  return contiguous(reshape(joined, {packed_, h_}));
}

Tensor QwenVision::attend(const Layer& layer, std::size_t index, const Tensor& hidden, const Context& context) const {
  const Tape::Scope scope(hidden.tape(), "attn");
  Tensor q, k, v;
  {
    const Tensor qkv = reshape(layer.qkv.forward(hidden), {packed_, {3, Sym::none}, heads_, d_});
    const Parts parts = split(transpose(qkv, 0, 1), 0, kOne, 3);
    q = view(parts[0], {packed_, heads_, d_});
    k = view(parts[1], {packed_, heads_, d_});
    v = view(parts[2], {packed_, heads_, d_});
  }
  {
    const Tensor q_wide = to(q, DType::f32);
    const Tensor k_wide = to(k, DType::f32);
    const Tensor cos = to(unsqueeze(context.cos, -2), DType::f32);
    const Tensor sin = to(unsqueeze(context.sin, -2), DType::f32);
    const Dim half{d_.size / 2, Sym::none};
    Tensor q_embed = turn_halves(q_wide, cos, sin, half);
    Tensor k_embed = turn_halves(k_wide, cos, sin, half);
    q_embed = to(q_embed, q.dtype());
    k_embed = to(k_embed, k.dtype());
    q = std::move(q_embed);
    k = std::move(k_embed);
  }
  q = unsqueeze(transpose(q, 0, 1), 0);
  k = unsqueeze(transpose(k, 0, 1), 0);
  v = unsqueeze(transpose(v, 0, 1), 0);
  Tensor output;
  if (options_.attention == Attention::flash) {
    const Tensor attended = packed_attention(q, k, v, context.ends, grid_of(whole(index)));
    output = contiguous(reshape(transpose(attended, 1, 2), {packed_, h_}));
  } else {
    output = in_pieces(index, q, k, v);
  }
  return layer.proj.forward(output);
}

// PatchMerger.forward.
Tensor QwenVision::merge(const Tensor& hidden) const {
  const Tape::Scope scope(hidden.tape(), "merger");
  const std::uint64_t unit = times(config_.merge_size, config_.merge_size);
  Tensor x = merger_norm_.forward(hidden);
  x = view(x, {{packed_.size / unit, Sym::none}, {times(h_.size, unit), Sym::none}});
  x = merger_in_.forward(x);
  x = gelu(x, false);
  return merger_out_.forward(x);
}

}  // namespace ledger
