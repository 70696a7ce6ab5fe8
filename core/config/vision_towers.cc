#include "core/config/vision_towers.h"

#include <cmath>
#include <string>

#include "core/config/counting.h"
#include "core/config/decoder_keys.h"

namespace ledger {
namespace {

using namespace counting;

// transformers models/clip/modeling_clip.py, CLIPVisionModel.
Count clip_tower(Fields& v) {
  const Count h = size(v, "hidden_size"), f = size(v, "intermediate_size", kMaxIntermediateSize);
  const Count patch = size(v, "patch_size", kMaxImageSide);
  const Count patches = squared(size(v, "image_size", kMaxImageSide) / patch);
  const Count channels = size(v, "num_channels", kMaxImageSide);
  return sum_of({h, linear(times(channels, squared(patch)), h, false), times(plus(patches, 1), h),
                 times(2, layer_norm(h)), times(size(v, "num_hidden_layers", kMaxLayers), encoder_layer(h, f))});
}

// transformers models/siglip/modeling_siglip.py, SiglipVisionModel; its pooling head unless vision_use_head is false.
Count siglip_tower(Fields& v) {
  const Count h = size(v, "hidden_size"), f = size(v, "intermediate_size", kMaxIntermediateSize);
  const Count patch = size(v, "patch_size", kMaxImageSide);
  const Count patches = squared(size(v, "image_size", kMaxImageSide) / patch);
  const Count channels = size(v, "num_channels", kMaxImageSide);
  bool head = true;
  v.flag("vision_use_head", head);
  const Count body = sum_of({linear(times(channels, squared(patch)), h), times(patches, h), layer_norm(h),
                             times(size(v, "num_hidden_layers", kMaxLayers), encoder_layer(h, f))});
  const Count pooling = sum_of({h, times(4, linear(h, h)), layer_norm(h), linear(h, f), linear(f, h)});
  return head ? plus(body, pooling) : body;
}

// transformers models/llama4/modeling_llama4.py, Llama4VisionModel.
Count llama4_tower(Fields& v) {
  const Count h = size(v, "hidden_size"), f = size(v, "intermediate_size", kMaxIntermediateSize);
  const Count patch = size(v, "patch_size", kMaxImageSide);
  const Count patches = squared(size(v, "image_size", kMaxImageSide) / patch);
  const Count channels = size(v, "num_channels", kMaxImageSide);
  const Count in = size(v, "projector_input_dim"), out = size(v, "projector_output_dim");
  return sum_of({linear(times(channels, squared(patch)), h, false), h, times(plus(patches, 1), h),
                 times(2, layer_norm(h)), times(size(v, "num_hidden_layers", kMaxLayers), encoder_layer(h, f)),
                 times(f, in), times(in, out)});
}

// Keys one by one: a report lists them in the order in which they were read, which in a call is the compiler's.
Count pixels_of_a_patch(Fields& v, Count side) {
  const Count channels = size(v, "in_channels", kMaxImageSide);
  const Count frames = size(v, "temporal_patch_size", 64);
  return times(channels, times(frames, squared(side)));
}

// transformers models/qwen2_vl/modeling_qwen2_vl.py, with the merger that ends in the text's width.
Count qwen2_vl_tower(Fields& v) {
  const Count e = size(v, "embed_dim"), out = size(v, "hidden_size"), patch = size(v, "patch_size", kMaxImageSide);
  const Count merged = times(e, squared(size(v, "spatial_merge_size", kMaxImageSide)));
  const Count pixels = pixels_of_a_patch(v, patch);
  const Count ffn = times(e, size(v, "mlp_ratio", 64));
  return sum_of({times(pixels, e), times(size(v, "num_hidden_layers", kMaxLayers), encoder_layer(e, ffn)),
                 layer_norm(e), linear(merged, merged), linear(merged, out)});
}

// transformers models/qwen2_5_vl/modeling_qwen2_5_vl.py: RMSNorm and a gated MLP with biases.
Count qwen2_5_vl_tower(Fields& v) {
  const Count e = size(v, "hidden_size"), out = size(v, "out_hidden_size"),
              patch = size(v, "patch_size", kMaxImageSide);
  const Count f = size(v, "intermediate_size", kMaxIntermediateSize);
  const Count merged = times(e, squared(size(v, "spatial_merge_size", kMaxImageSide)));
  const Count pixels = pixels_of_a_patch(v, patch);
  const Count block = sum_of({times(3, linear(e, e)), linear(e, e), times(2, linear(e, f)), linear(f, e), times(2, e)});
  return sum_of({times(pixels, e), times(size(v, "num_hidden_layers", kMaxLayers), block), e, linear(merged, merged),
                 linear(merged, out)});
}

// What every encoder of images of one size has.
void read_sizes(Fields& v, VisionConfig& config) {
  config.hidden_size = size(v, "hidden_size");
  config.intermediate_size = size(v, "intermediate_size", kMaxIntermediateSize);
  config.layers = size(v, "num_hidden_layers", kMaxLayers);
  config.heads = size(v, "num_attention_heads", kMaxHeads);
  config.image_size = size(v, "image_size", kMaxImageSide);
  config.patch_size = size(v, "patch_size", kMaxImageSide);
  config.channels = size(v, "num_channels", kMaxImageSide);
}

bool takes_activation(Fields& v, VisionConfig& config) {
  std::string name;
  v.text("hidden_activation", name);
  const std::optional<Act> act = activation_named(name);
  config.act = act.value_or(config.act);
  return act.has_value();
}

}  // namespace

bool read_image_encoder(Fields& v, VisionConfig& config) {
  read_sizes(v, config);
  v.flag("qkv_bias", config.qkv_bias);
  v.real("rms_norm_eps", 0, 1, config.norm_eps);
  v.real("hidden_dropout_prob", 0, 1, config.hidden_dropout);
  v.real(v.has_default("attention_dropout") ? "attention_dropout" : "attention_probs_dropout_prob", 0, 1,
         config.attention_dropout);
  if (config.model_type == "siglip_vision_model") config.pooling_head = true;
  v.flag("vision_use_head", config.pooling_head);
  return takes_activation(v, config) && !config.pooling_head && config.hidden_size % config.heads == 0 &&
         config.patches() != 0;
}

namespace {

// What both of Qwen's towers have. Positions turn a quarter of a head's neighbours each, by row and by column.
bool read_qwen_tower(Fields& v, VisionConfig& config, Count width, Count ffn) {
  config.hidden_size = width;
  config.intermediate_size = ffn;
  config.layers = size(v, "num_hidden_layers", kMaxLayers);
  config.heads = size(v, "num_attention_heads", kMaxHeads);
  config.patch_size = size(v, "patch_size", kMaxImageSide);
  config.channels = size(v, "in_channels", kMaxImageSide);
  config.merge_size = size(v, "spatial_merge_size", kMaxImageSide);
  config.temporal_patch = size(v, "temporal_patch_size", 64);
  config.norm_eps = 1e-6;
  const bool activates = takes_activation(v, config);
  return activates && width % config.heads == 0 && width / config.heads % 4 == 0 &&
         times(config.patch_size, config.merge_size) <= kMaxImageSide;
}

bool read_qwen2_vl_tower(Fields& v, VisionConfig& config) {
  const Count width = size(v, "embed_dim");
  config.out_width = size(v, "hidden_size");
  return read_qwen_tower(v, config, width, times(width, size(v, "mlp_ratio", 64)));
}

// Which layers see the whole image: fullatt_block_indexes.
bool read_full_layers(const Fields& v, VisionConfig& config) {
  const Json* list = v.given("fullatt_block_indexes");
  if (list == nullptr || !list->is_array()) return false;
  config.full_layers.assign(static_cast<std::size_t>(config.layers), false);
  for (const Json& item : list->items()) {
    std::uint64_t layer = 0;
    if (read_unsigned(item, "fullatt_block_indexes", 0, kMaxLayers, layer)) return false;
    if (layer < config.layers) config.full_layers[static_cast<std::size_t>(layer)] = true;
  }
  return true;
}

bool read_qwen2_5_vl_tower(Fields& v, VisionConfig& config) {
  const Count width = size(v, "hidden_size");
  config.out_width = size(v, "out_hidden_size");
  const bool read = read_qwen_tower(v, config, width, size(v, "intermediate_size", kMaxIntermediateSize));
  config.window_side = size(v, "window_size", kMaxImageSide) / config.merge_size / config.patch_size;
  return read_full_layers(v, config) && read && config.window_side != 0;
}

// Its MLPs run GELU whatever hidden_act says.
bool read_llama4_tower(Fields& v, VisionConfig& config) {
  read_sizes(v, config);
  config.adapter_in = size(v, "projector_input_dim");
  config.adapter_out = size(v, "projector_output_dim");
  config.out_width = size(v, "vision_output_dim");
  config.norm_eps = 1e-5;
  config.tiled = true;
  v.real("attention_dropout", 0, 1, config.attention_dropout);
  v.real("projector_dropout", 0, 1, config.projector_dropout);
  double ratio = 0.5;
  constexpr double kLeastRatio = 1.0 / 64;  // of 64 x 64 patches one token; Llama 4 has 2 x 2
  v.real("pixel_shuffle_ratio", kLeastRatio, 1, ratio);
  config.shuffle = static_cast<Count>(std::lround(1 / ratio));
  const bool whole = static_cast<double>(config.shuffle) * ratio == 1;
  const Count side = config.image_size / config.patch_size, shuffled = squared(config.shuffle);
  config.tokens = squared(side / config.shuffle);
  // fc1 reads what the shuffle makes, fc2 what fc1 makes, the projector what fc2 makes.
  const bool fits = times(config.hidden_size, shuffled) == config.intermediate_size &&
                    config.adapter_in == config.adapter_out && config.adapter_out == config.out_width;
  const bool even = side != 0 && side % config.shuffle == 0 && config.hidden_size % config.heads == 0 &&
                    config.hidden_size / config.heads % 4 == 0;
  return whole && fits && even;
}

// The vision classes with their defaults, as families.cc has the decoders'.
constexpr Tower kTowers[] = {
    {"clip_vision_model", clip_tower,
     R"({"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_channels":3,"image_size":224,)"
     R"("patch_size":32,"num_attention_heads":12,"hidden_activation":"quick_gelu","rms_norm_eps":1e-5,)"
     R"("attention_dropout":0.0})",
     read_image_encoder},
    {"siglip_vision_model", siglip_tower,
     R"({"hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_channels":3,"image_size":224,)"
     R"("patch_size":16,"num_attention_heads":12,"hidden_activation":"gelu_pytorch_tanh","rms_norm_eps":1e-6,)"
     R"("attention_dropout":0.0})",
     read_image_encoder},
    {"llama4_vision_model", llama4_tower,
     R"({"hidden_size":768,"intermediate_size":5632,"num_hidden_layers":34,"num_channels":3,"image_size":448,)"
     R"("patch_size":14,"projector_input_dim":4096,"projector_output_dim":4096,"num_attention_heads":16,)"
     R"("pixel_shuffle_ratio":0.5,"vision_output_dim":7680,"projector_dropout":0.0,"attention_dropout":0.0})",
     read_llama4_tower},
    {"qwen2_vl", qwen2_vl_tower,
     R"({"embed_dim":1280,"hidden_size":3584,"num_hidden_layers":32,"mlp_ratio":4,"in_channels":3,"patch_size":14,)"
     R"("spatial_merge_size":2,"temporal_patch_size":2,"num_attention_heads":16,"hidden_activation":"quick_gelu"})",
     read_qwen2_vl_tower},
    {"qwen2_5_vl", qwen2_5_vl_tower,
     R"({"hidden_size":3584,"intermediate_size":3420,"num_hidden_layers":32,"in_channels":3,"patch_size":14,)"
     R"("spatial_merge_size":2,"temporal_patch_size":2,"out_hidden_size":3584,"num_attention_heads":16,)"
     R"("hidden_activation":"silu","window_size":112,"fullatt_block_indexes":[7,15,23,31]})",
     read_qwen2_5_vl_tower},
};

}  // namespace

const Tower* find_tower(std::string_view name) {
  for (const Tower& tower : kTowers) {
    if (name == tower.model_type || name == std::string(tower.model_type) + "_vision") return &tower;
  }
  return nullptr;
}

}  // namespace ledger
