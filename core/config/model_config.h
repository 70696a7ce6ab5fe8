// model_config.h - a hub config.json (or a plain stack of layers) as the numbers that modules are built from.
//
// Families are a table (families.cc): one row per model_type with the defaults of its configuration class, since
// config.json leaves out keys that equal them. What is not a model configuration (a tokenizer, a generation config,
// ...) is named.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/problem.h"
#include "core/config/style.h"
#include "core/trace/trace.h"

namespace ledger {

// What builds it: the decoder of core/models, a plain stack, nothing yet (its parameters are counted), an encoder of
// text or of images, an encoder before a decoder, or an encoder of images before a decoder.
enum class Architecture : std::uint8_t { llama, plain, counted, bert, t5, vit, image_text };

struct PlainLinear {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  bool bias = true;  // nn.Linear's default
};

// Mixture-of-experts layers; no experts: none.
struct MoeConfig {
  std::uint64_t experts = 0;
  std::uint64_t per_token = 0;
  std::uint64_t width = 0;         // of an expert's MLP
  bool normalised = false;         // weights of a token's experts sum to 1
  std::uint64_t shared_width = 0;  // of the expert that every token visits; 0: none
  std::uint64_t groups = 1;        // experts are chosen from the best of so many groups
  std::uint64_t groups_kept = 1;
  double scale = 1;          // of the chosen experts' weights
  std::vector<bool> layers;  // by layer: has experts instead of an MLP
};

// DeepSeek's latent attention.
struct LatentConfig {
  std::uint64_t q_rank = 0;  // 0: queries are not compressed
  std::uint64_t kv_rank = 0;
  std::uint64_t nope_dim = 0, rope_dim = 0, v_dim = 0;  // of a head
  bool interleaved = false;                             // neighbours turn with each other
  bool normed = true;                                   // compressed queries, keys and values
};

// T5's decoder, which stands beside an encoder of num_hidden_layers, and its biases by distance.
struct EncoderDecoderConfig {
  std::uint64_t decoder_layers = 0;
  std::uint64_t buckets = 0;       // of distances
  std::uint64_t max_distance = 0;  // from which all distances share a bucket
  bool scales_outputs = false;     // of the decoder, by 1/sqrt(hidden_size), before the output layer
};

// An encoder of images: a model by itself (ViT), or a vision-language model's tower with what joins it to the text.
struct VisionConfig {
  std::string model_type;  // "vit", "clip_vision_model", "qwen2_vl", ...; empty: there is none
  std::uint64_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0;
  std::uint64_t image_size = 0, patch_size = 0, channels = 3;
  Act act = Act::gelu;
  double norm_eps = 1e-6;
  double hidden_dropout = 0, attention_dropout = 0;
  bool qkv_bias = true;
  bool pooling_head = false;        // SigLIP's, whose result no vision-language model reads
  std::uint64_t labels = 0;         // ViT's classes
  std::uint64_t tokens = 0;         // of an image, in the text
  std::uint64_t token_id = 0;       // that stands for each of them
  std::uint64_t feature_layer = 0;  // LLaVA: after how many layers the features are taken
  bool drops_first = false;         // LLaVA: the features' first token stays behind
  bool projector_bias = true;
  Act projector_act = Act::gelu;
  // Qwen2-VL's and Qwen2.5-VL's, which take images of any size (image_grid.h).
  std::uint64_t temporal_patch = 0;  // frames of a patch
  std::uint64_t out_width = 0;       // of the features, Llama 4's as well
  std::uint64_t merge_size = 1;      // so many patches a side become one token
  std::uint64_t window_side = 0;     // of the windows whose tokens see each other, in tokens; 0: there are none
  std::vector<bool> full_layers;     // by layer: sees the whole image all the same
  // Llama 4's, which sees an image as tiles of image_size.
  bool tiled = false;
  std::uint64_t shuffle = 1;  // so many patches a side lie in one token
  std::uint64_t adapter_in = 0, adapter_out = 0;
  double rope_theta = 10000;
  double projector_dropout = 0;

  bool any_size() const { return temporal_patch != 0; }
  std::uint64_t patches() const { return image_size / patch_size * (image_size / patch_size); }
};

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::string model_type;  // "llama", "plain"
  Style style;
  std::uint64_t hidden_size = 0;
  std::uint64_t num_hidden_layers = 0;
  std::uint64_t num_attention_heads = 0;
  std::uint64_t num_key_value_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t intermediate_size = 0;
  std::uint64_t vocab_size = 0;
  std::uint64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;  // of whichever norm
  double rope_theta = 10000;
  double rope_local_theta = 0;   // of sliding layers, where they have their own; 0: rope_theta
  std::uint64_t rotary_dim = 0;  // of head_dim, the part that is turned; 0: all of it
  RopeScaling rope;
  std::array<std::uint64_t, 3> rope_sections{};  // of half a head: turned by time, row and column (Qwen2-VL)
  Act act = Act::silu;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool qkv_bias = false;             // on q, k and v only (qwen2)
  bool qk_norm = false;              // norm on q and k, over the head dimension (qwen3)
  std::uint64_t sliding_window = 0;  // tokens that attention looks back; 0: all of them
  bool mlp_bias = false;
  std::uint64_t attention_chunk = 0;  // tokens that see each other and no others; 0: all of them
  bool qk_l2_norm = false;            // queries and keys over their root mean square, without weights (Llama 4)
  double temperature_floor = 0;       // queries of layers without rotary embedding grow every so many tokens; 0: not
  double temperature_scale = 0;
  std::vector<bool> full_layers;  // by layer: ignores the sliding window or chunk; empty: none does
  std::vector<bool> nope_layers;  // by layer: without rotary embedding; empty: none
  MoeConfig moe;
  LatentConfig latent;
  EncoderDecoderConfig t5;
  bool takes_sdpa = true;  // false: the code that the file names runs its own attention where nothing else is asked for
  std::uint64_t embedding_width = 0;  // of the embedding table, where it is projected to hidden_size (opt-350m); 0: no
  std::uint64_t extra_positions = 0;  // rows of a learned position table beyond max_position_embeddings
  bool final_norm = true;
  double embedding_multiplier = 0;  // 0: none, here and below
  double attention_scale = 0;       // instead of 1/sqrt(head_dim)
  double residual_multiplier = 0;
  double logits_divisor = 0, logits_multiplier = 0;
  double logits_softcap = 0, attention_softcap = 0;
  double embedding_dropout = 0, residual_dropout = 0, attention_dropout = 0;
  std::vector<PlainLinear> layers;    // plain stacks only
  std::uint64_t counted = 0;          // parameters, of every Architecture but llama and plain
  std::uint64_t type_vocab_size = 0;  // BERT's kinds of tokens
  VisionConfig vision;
  std::string text_type;  // model_type of an image_text model's decoder, whose sizes stand above

  // Why the step of this model is not traced: a reason's id, or nothing.
  std::string untraced;

  // Keys and values that the file gave and that were used, for reports; of families that need more than Llama's.
  std::vector<std::pair<std::string, Json>> used;

  // Ids of what was assumed or ignored, for the report's notes ("rope_scaling_type_not_computed", ...), with a detail
  // each.
  std::vector<std::pair<std::string, std::string>> notes;
};

// BLOOM's, GPT-J's, gpt-oss's and T5's classes do not take sdpa, and InternLM2's only where the file says so:
// transformers' default becomes their written-out attention.
inline bool writes_attention_out(const ModelConfig& c) {
  return c.style.position == Position::alibi || c.style.position == Position::table ||
         c.style.position == Position::relative || c.style.sinks || !c.takes_sdpa;
}

// Largest sizes taken, some hundred times today's largest models, so that no later product can be absurd: even all of
// them at once stay below 2^63 parameters. Out-of-bounds values are Problems, never clamped.
inline constexpr std::uint64_t kMaxLayers = 4096;
inline constexpr std::uint64_t kMaxHiddenSize = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kMaxIntermediateSize = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kMaxHeads = 65536;
inline constexpr std::uint64_t kMaxHeadDim = 4096;
inline constexpr std::uint64_t kMaxVocabSize = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMaxPositions = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kMaxExperts = 65536;
inline constexpr std::uint64_t kMaxPlainSize = std::uint64_t{1} << 24;  // in and out of a plain layer

// Reads a config.json text. A key that is absent or null takes the family's default; keys that no size depends on are
// ignored.
Result<ModelConfig> read_model_config(std::string_view text);
Result<ModelConfig> model_config_from(const Json& root);

// Parameters of the model, trained or not, counting tied weights once. (parameters.cc)
std::uint64_t parameter_count(const ModelConfig& config);

}  // namespace ledger
