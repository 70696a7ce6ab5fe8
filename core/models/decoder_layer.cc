#include "core/models/decoder_layer.h"

#include <string>
#include <tuple>

#include "core/models/bloom.h"
#include "core/models/falcon.h"
#include "core/models/gptj.h"

namespace ledger {
namespace {

using Layer = const DecoderLayer&;

Tensor feed(Layer layer, const Tensor& hidden) {
  return layer.moe ? layer.moe->forward(hidden) : layer.mlp.forward(hidden);
}

// residual + hidden * multiplier.
Tensor add_residual(Layer layer, const Tensor& residual, const Tensor& hidden) {
  return layer.residual_multiplier == 0 ? residual + hidden : residual + hidden * layer.residual_multiplier;
}

// transformers models/llama/modeling_llama.py, LlamaDecoderLayer.
Tensor pre(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  Tensor residual = input;
  Tensor hidden = layer.input_norm.forward(input);
  Tensor weights;  // `hidden_states, _ = self.self_attn(...)`: the underscore is a name, too
  std::tie(hidden, weights) = layer.self_attn.forward(hidden, context, dims);
  hidden = add_residual(layer, residual, hidden);
  residual = hidden;
  hidden = layer.attention_norm->forward(hidden);
  hidden = feed(layer, hidden);
  if (layer.self_attn.sinks) weights.reset();  // GptOssDecoderLayer: `hidden_states, _ = self.mlp(...)`
  hidden = add_residual(layer, residual, hidden);
  return hidden;
}

// transformers models/gpt2/modeling_gpt2.py, GPT2Block: the same, with names for what attention and MLP return.
Tensor pre_gpt2(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  Tensor hidden = layer.input_norm.forward(input);
  const auto [attended, weights] = layer.self_attn.forward(hidden, context, dims);
  hidden = attended + input;
  const Tensor residual = hidden;
  hidden = layer.attention_norm->forward(hidden);
  const Tensor fed = feed(layer, hidden);
  return residual + fed;
}

// transformers models/stablelm/modeling_stablelm.py, StableLmDecoderLayer: with a name for everything.
Tensor pre_stablelm(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  const Tensor normed = layer.input_norm.forward(input);
  const auto [attended, weights] = layer.self_attn.forward(normed, context, dims);
  const Tensor residual = input + attended;
  const Tensor fed = feed(layer, layer.attention_norm->forward(residual));
  return residual + fed;
}

// transformers models/llama4/modeling_llama4.py, Llama4TextDecoderLayer: the attention's result keeps its name.
Tensor pre_llama4(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  Tensor hidden = layer.input_norm.forward(input);
  const auto [attended, weights] = layer.self_attn.forward(hidden, context, dims);
  hidden = input + attended;
  const Tensor residual = hidden;
  hidden = layer.attention_norm->forward(hidden);
  hidden = feed(layer, hidden);
  return residual + hidden;
}

// transformers models/olmo2/modeling_olmo2.py, Olmo2DecoderLayer.
Tensor post(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  Tensor residual = input;
  Tensor hidden, weights;
  std::tie(hidden, weights) = layer.self_attn.forward(input, context, dims);
  hidden = layer.attention_norm->forward(hidden);
  hidden = residual + hidden;
  residual = hidden;
  hidden = feed(layer, hidden);
  hidden = layer.output_norm->forward(hidden);
  hidden = residual + hidden;
  return hidden;
}

// transformers models/gemma2/modeling_gemma2.py, Gemma2DecoderLayer.
Tensor sandwich(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  Tensor residual = input;
  Tensor hidden = layer.input_norm.forward(input);
  Tensor weights;
  std::tie(hidden, weights) = layer.self_attn.forward(hidden, context, dims);
  hidden = layer.attention_norm->forward(hidden);
  hidden = residual + hidden;
  residual = hidden;
  hidden = layer.feed_norm->forward(hidden);
  hidden = feed(layer, hidden);
  hidden = layer.output_norm->forward(hidden);
  hidden = residual + hidden;
  return hidden;
}

// transformers models/cohere/modeling_cohere.py, CohereDecoderLayer: residual + attention + mlp; and models/phi/
// modeling_phi.py, PhiDecoderLayer: attention + mlp + residual, which under autocast sums in 16 bits first.
Tensor parallel(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  const Tensor hidden = layer.input_norm.forward(input);
  Tensor attended, weights;
  std::tie(attended, weights) = layer.self_attn.forward(hidden, context, dims);
  const Tensor fed = feed(layer, hidden);
  if (layer.mlp.feed == Feed::plain) return attended + fed + input;
  return input + attended + fed;
}

// transformers models/gpt_neox/modeling_gpt_neox.py, GPTNeoXLayer.
Tensor parallel_two(Layer layer, const Tensor& input, const LayerContext& context, const DecoderDims& dims) {
  Tensor attended, weights;
  std::tie(attended, weights) = layer.self_attn.forward(layer.input_norm.forward(input), context, dims);
  const Tensor fed = feed(layer, layer.attention_norm->forward(input));
  return fed + attended + input;
}

struct Own {
  const char* model_type;
  Layout layout;
  DecoderLayer::Code code;
};

// Families whose code is another than their layout's.
constexpr Own kOwn[] = {
    {"gpt2", Layout::pre, pre_gpt2},
    {"stablelm", Layout::pre, pre_stablelm},
    {"llama4_text", Layout::pre, pre_llama4},
    {"falcon", Layout::parallel, falcon_layer},
    {"falcon", Layout::parallel_two, falcon_layer},
};

DecoderLayer::Code code_of(const ModelConfig& c) {
  for (const Own& own : kOwn) {
    if (c.model_type == own.model_type && c.style.layout == own.layout) return own.code;
  }
  constexpr DecoderLayer::Code kLayouts[] = {pre, post, sandwich, parallel, parallel_two};
  return kLayouts[static_cast<std::size_t>(c.style.layout)];
}

}  // namespace

DecoderLayer DecoderLayer::make(ModuleBuilder& builder, const ModelConfig& c, const DecoderDims& n, std::size_t index) {
  const ModuleNames& names = names_of(c);
  const std::string path = std::string(names.base) + "." + names.layers + "." + std::to_string(index) + ".";
  const Tape::Layer number(builder.tape(), static_cast<std::int32_t>(index));
  const auto norm = [&](const char* name) {
    return Norm::make(builder, path, name, c.style.norm, n.h, c.rms_norm_eps);
  };
  DecoderLayer layer;
  layer.code = code_of(c);
  layer.layout = c.style.layout;
  layer.residual_multiplier = c.residual_multiplier;
  layer.self_attn = SelfAttention::make(builder, path, c, names, n);
  layer.self_attn.turned = c.nope_layers.empty() || !c.nope_layers[index];
  if (!c.moe.layers.empty() && c.moe.layers[index]) {
    layer.moe = MixtureOfExperts::make(builder, path, c, n);
  } else {
    const ModuleBuilder::WithoutAdapters none(builder, expert_targets(c) != nullptr);
    layer.mlp = FeedForward::make(builder, path, c, names, n.h, n.ffn);
  }
  if (layer.layout != Layout::post) layer.input_norm = norm(names.input_norm);
  if (layer.layout != Layout::parallel) layer.attention_norm = norm(names.attention_norm);
  if (layer.layout == Layout::sandwich) layer.feed_norm = norm(names.feed_norm);
  if (layer.layout == Layout::sandwich || layer.layout == Layout::post) layer.output_norm = norm(names.output_norm);
  return layer;
}

Tensor DecoderLayer::forward(const Tensor& hidden, const LayerContext& context, const DecoderDims& dims,
                             Tensor* weights) const {
  if (context.alibi || self_attn.embed_positions) {
    auto [output, probabilities] =
        context.alibi ? bloom_layer(*this, hidden, context, dims) : gptj_layer(*this, hidden, context, dims);
    if (weights != nullptr) *weights = std::move(probabilities);
    return std::move(output);
  }
  return code(*this, hidden, context, dims);
}

}  // namespace ledger
