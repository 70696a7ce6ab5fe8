// What images cost Qwen2-VL, Qwen2.5-VL and Llama 4, tensor by tensor. Written against transformers 5.12's source.
#include <gtest/gtest.h>

#include "tests/models/image_models.h"

namespace ledger {
namespace {

using namespace image_models;

// Images of 56 by 84 pixels: 2 by 3 tokens of 4 patches each.
constexpr const char* kQwen2 = R"({"model_type":"qwen2_vl","image_token_id":7,"text_config":{"hidden_size":32,
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,"vocab_size":61,
  "rope_scaling":{"type":"mrope","mrope_section":[2,1,1]}},"vision_config":{"embed_dim":16,"depth":2,"num_heads":2,
  "mlp_ratio":2,"hidden_size":32}})";

// The same with windows of 2 by 2 tokens: of 4 and of 2 tokens for each image.
constexpr const char* kQwen25 = R"({"model_type":"qwen2_5_vl","image_token_id":7,"text_config":{"hidden_size":32,
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,"vocab_size":61,
  "rope_scaling":{"type":"mrope","mrope_section":[2,1,1]}},"vision_config":{"hidden_size":16,"depth":3,"num_heads":2,
  "intermediate_size":24,"out_hidden_size":32,"window_size":56,"fullatt_block_indexes":[2]}})";

// 16 patches and a class token; 4 tokens a tile.
constexpr const char* kLlama4 = R"({"model_type":"llama4","image_token_index":7,"text_config":{"hidden_size":32,
  "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"intermediate_size":48,
  "vocab_size":61,"num_local_experts":4,"intermediate_size_mlp":40,"interleave_moe_layer_step":2,
  "attention_chunk_size":512},"vision_config":{"hidden_size":8,"intermediate_size":32,"num_hidden_layers":2,
  "num_attention_heads":2,"image_size":8,"patch_size":2,"projector_input_dim":12,"projector_output_dim":12,
  "vision_output_dim":12}})";

constexpr Bytes kPatches = 2 * 24, kTokens = 2 * 6;  // of both sequences' images
constexpr Bytes kRandom = 16 + 8;                    // state of a call of flash attention

Settings sized(Settings more = {}) {
  more.insert(more.begin(), {{"image_height", "56"}, {"image_width", "84"}});
  return more;
}

// A patch of a layer in bf16: inputs and results of two norms 8h, queries, keys and values in one 6h, queries and keys
// turned 4h, attention's result and the pieces joined 4h, QuickGELU's input, gate and result 6 ffn, statistics.
TEST(QwenVision, ALayerKeepsWhatTheMemoryModelSays) {
  const Trace trace = traced(kQwen2, sized());
  const Bytes h = 16, ffn = 32, heads = 2;
  EXPECT_EQ(alive(trace, "step1.forward", "model.visual.blocks", Category::activations),
            2 * (kPatches * (22 * h + 6 * ffn + 4 * heads + 16) + 2 * kRandom));
}

// Norms of Llama's kind, a gated MLP with silu's input and result, and a call for each window.
TEST(QwenVision, WindowsAreCallsOfTheirOwn) {
  const Trace trace = traced(kQwen25, sized());
  const Bytes h = 16, ffn = 24, heads = 2;
  EXPECT_EQ(alive(trace, "step1.forward", "model.visual.blocks", Category::activations),
            3 * kPatches * (30 * h + 8 * ffn + 4 * heads + 8) + (2 * 2 * 2 + 2) * kRandom);
}

TEST(QwenVision, FlashAttentionTakesAllImagesAtOnce) {
  const auto calls = [](const char* text, const char* attention, OpKind op) {
    TraceOptions options;
    options.operands = true;
    Settings settings = sized({{"attention", attention}, {"batch", "2"}, {"seq", "24"}});
    const Result<Trace> trace = trace_step(config_of(text), recipe_of(settings), options);
    std::size_t count = 0;
    for (const ledger::Run& run : trace.value().runs)
      count += run.op == op ? 1 : 0;
    return count;
  };
  const std::size_t steps = 2;
  EXPECT_EQ(calls(kQwen2, "flash", OpKind::packed_attention), steps * 2);
  EXPECT_EQ(calls(kQwen25, "flash", OpKind::packed_attention), steps * 3);
  EXPECT_EQ(calls(kQwen25, "flash", OpKind::packed_attention_backward), steps * 3);
  EXPECT_EQ(calls(kQwen25, "sdpa", OpKind::packed_attention), 0u);
  EXPECT_EQ(calls(kQwen2, "sdpa", OpKind::flash_attention), steps * (2 * 2 + 2)) << "and the text's";
  EXPECT_EQ(calls(kQwen25, "sdpa", OpKind::flash_attention), steps * (2 * 2 * 2 + 2 + 2));
}

// fully_shard casts the fp32 positions for every unit, which casts them back: each layer then keeps its own.
TEST(QwenVision, ShardedLayersKeepPositionsOfTheirOwn) {
  const Trace sharded = traced(kQwen2, sized({{"dp", "2"}, {"fsdp", "2"}}));
  const Bytes d = 8;
  EXPECT_EQ(alive(sharded, "step1.forward", "model.visual.blocks", Category::activations),
            alive(traced(kQwen2, sized()), "step1.forward", "model.visual.blocks", Category::activations) +
                2 * kPatches * 2 * 4 * d);
  EXPECT_EQ(said(kQwen2, sized({{"dp", "2"}, {"fsdp", "1"}, {"seq", "24"}})),
            "unsupported_recipe where=fsdp read=1 expected=image_parallelism_not_modelled nearest=");
}

TEST(QwenVision, PixelsArePatchesInARow) {
  const Trace trace = traced(kQwen2, sized());
  const Bytes pixels = kPatches * 3 * 2 * 14 * 14;
  EXPECT_EQ(alive(trace, "step1.forward", "pixel_values", Category::inputs), 4 * pixels);
  EXPECT_EQ(alive(trace, "step1.forward", "image_grid_thw", Category::inputs), 2 * 3 * 8u);
  EXPECT_EQ(alive(trace, "step1.forward", "mm_token_type_ids", Category::inputs), 2 * 24 * 8u);
  EXPECT_GE(alive(trace, "step1.forward", "model.visual.patch_embed", Category::activations), 2 * kPatches * 16)
      << "what the first norm reads";
}

// Each layer joins its own cosines and sines from the tables of three axes, and keeps them.
TEST(QwenVl, LayersKeepTheirPositions) {
  const Trace trace = traced(kQwen2, sized());
  const Trace plain = traced(R"({"model_type":"qwen2","hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,
    "num_key_value_heads":2,"intermediate_size":48,"vocab_size":61})",
                             {});
  const Bytes tokens = 2 * 24, d = 8;
  EXPECT_EQ(alive(trace, "step1.forward", "model.language_model.layers", Category::activations),
            alive(plain, "step1.forward", "model.layers", Category::activations) + 2 * tokens * 2 * 2 * d);
}

TEST(QwenVl, TheImageSizeIsTheRecipes) {
  const auto peak = [](const Settings& settings) { return replay(traced(kQwen2, settings), {}).peak_tensor_bytes; };
  EXPECT_GT(peak({{"image_height", "112"}, {"image_width", "84"}}), peak(sized()));
  EXPECT_EQ(peak({{"image_height", "60"}, {"image_width", "80"}}), peak(sized())) << "the processor rounds";
  EXPECT_EQ(said(kQwen2, {{"seq", "24"}}),
            "unsupported_recipe where=images read=1 expected=images_do_not_fit nearest=");
  EXPECT_EQ(said(kQwen2, {{"seq", "730"}}), "ok") << "27 x 27 tokens and one before them";
  EXPECT_EQ(said(kQwen2, {{"seq", "9000"}, {"image_height", "8400"}, {"image_width", "28"}}),
            "unsupported_recipe where=image_height read=8400 expected=image_too_narrow nearest=");
  EXPECT_EQ(said(kLlama4, {{"seq", "40"}, {"image_height", "9"}}), "ok");
  EXPECT_EQ(said(R"({"model_type":"llama","num_hidden_layers":1})", {{"image_width", "9"}}),
            "unsupported_recipe where=image_height read=0 expected=image_size_is_fixed nearest=");
}

TEST(QwenVl, AFrozenTowerKeepsNothingAndItsMergerIsTrained) {
  const Bytes last = kPatches * 16 * 2;  // layer norm keeps its input, norms of Llama's kind an fp32 copy of it
  for (const auto& [text, kept] : {std::pair{kQwen2, last}, {kQwen25, Bytes{0}}}) {
    const Trace trace = traced(text, sized({{"freeze_vision_tower", "true"}}));
    EXPECT_EQ(alive(trace, "step1.forward", "model.visual.blocks", Category::activations), kept);
    EXPECT_EQ(alive(trace, "step1.backward", "model.visual.blocks", Category::gradients), 0u);
    EXPECT_GT(alive(trace, "step1.backward", "model.visual.merger", Category::gradients), 0u);
    for (const Parameter& p : trace.parameters) {
      const bool tower = p.name.starts_with("model.visual.blocks.") || p.name.starts_with("model.visual.patch_embed.");
      EXPECT_EQ(p.trainable, !tower) << p.name;
    }
  }
}

TEST(QwenVl, AdaptersAreNamedAsPeftNamesThem) {
  const Trace all = traced(kQwen2, sized({{"method", "lora"}}));
  EXPECT_EQ(adapted(all, "model.visual.blocks"), 2 * 4 * 2);
  EXPECT_EQ(adapted(all, "model.visual.merger"), 2 * 2);
  EXPECT_EQ(adapted(all, "model.visual.patch_embed"), 0);
  EXPECT_EQ(adapted(all, "language_model"), 2 * 7 * 2);
  EXPECT_EQ(adapted(all, "lm_head"), 0);
  const Trace named = traced(kQwen25, sized({{"method", "lora"}, {"targets", "attn.proj,gate_proj,mlp.0"}}));
  EXPECT_EQ(adapted(named, "model.visual.blocks"), 2 * 2 * 3);
  EXPECT_EQ(adapted(named, "model.visual.merger"), 2);
  EXPECT_EQ(adapted(named, "language_model"), 2 * 2) << "gate_proj is looked for everywhere";
  Settings proj = sized({{"method", "lora"}, {"targets", "proj"}, {"seq", "24"}});
  EXPECT_EQ(said(kQwen2, proj),
            "unsupported_recipe where=targets read=proj expected=convolution_adapter_not_modelled nearest=");
}

TEST(QwenVl, FourBitLayersAreAllButTheOutputAndTheConvolution) {
  const Trace trace = traced(kQwen25, sized({{"method", "qlora"}}));
  std::size_t packed = 0;
  for (const StorageInfo& storage : trace.storages)
    packed += storage.op == OpKind::quantise && storage.dtype == DType::u8 &&
                      trace.names[storage.scope].starts_with("model.visual")
                  ? 1
                  : 0;
  EXPECT_GT(packed, 0u);
  for (const Parameter& p : trace.parameters) {
    if (p.name == "model.visual.patch_embed.proj.weight") {
      EXPECT_EQ(trace.storages[p.storage].dtype, DType::f32) << "prepared for k-bit training";
    }
  }
}

TEST(QwenVl, VariantsThatNoModuleBuildsAreRefused) {
  const auto untraced = [](const char* text, const char* from, const char* to) {
    return config_of(changed(text, from, to).c_str()).untraced;
  };
  const std::string variant = "variant_step_not_modelled";
  EXPECT_EQ(untraced(kQwen2, "[2,1,1]", "[2,1,2]"), variant);
  EXPECT_EQ(untraced(kQwen2, "[2,1,1]", "[2,1,1]"), "");
  EXPECT_EQ(untraced(kQwen2, R"("num_heads":2)", R"("num_heads":8)"), variant) << "heads of two";
  EXPECT_EQ(untraced(kQwen2, R"("mlp_ratio":2,"hidden_size":32)", R"("mlp_ratio":2,"hidden_size":16)"), variant);
  EXPECT_EQ(untraced(kQwen25, R"("window_size":56)", R"("window_size":14)"), variant);
  EXPECT_EQ(untraced(kQwen25, R"("out_hidden_size":32)", R"("out_hidden_size":16)"), variant);
  EXPECT_EQ(untraced(kLlama4, R"("vision_output_dim":12)", R"("vision_output_dim":24)"), variant);
  EXPECT_EQ(untraced(kLlama4, R"("patch_size":2)", R"("patch_size":3)"), "");
  EXPECT_EQ(untraced(kLlama4, R"("patch_size":2)", R"("patch_size":5)"), variant) << "a side of one patch";
  const ModelConfig assumed = config_of(changed(kQwen2, R"(,"mrope_section":[2,1,1])", "").c_str());
  EXPECT_EQ(assumed.untraced, variant) << "no eighths in a head of 8";
}

// Many small images in many windows would be more events than a trace has room for.
TEST(QwenVl, TooManyPiecesAreNamed) {
  const std::string answer = said(
      kQwen25, {{"seq", "65536"}, {"images", "4000"}, {"image_height", "56"}, {"image_width", "84"}, {"batch", "16"}});
  EXPECT_TRUE(answer.starts_with("too_large_to_trace where=batch, seq")) << answer;
}

// As ViT's: the last token is the class's.
TEST(Llama4Vision, ALayerKeepsWhatTheMemoryModelSays) {
  const Trace trace = traced(kLlama4, {});
  const Bytes places = 2 * 17, h = 8, ffn = 32, heads = 2;
  EXPECT_EQ(alive(trace, "step1.forward", "vision_model.model.layers", Category::activations),
            2 * (places * (16 * h + 4 * ffn + 4 * heads + 16) + kRandom));
  EXPECT_EQ(alive(trace, "step1.forward", "pixel_values", Category::inputs), 2 * 2 * 3 * 8 * 8u) << "in bf16";
  EXPECT_EQ(alive(trace, "step1.forward", "vision_model.rotary_embedding", Category::buffers), 17 * 4 * 4u);
}

TEST(Llama4Vision, TilesPassTheTowerTogether) {
  const auto pixels = [](const char* height) {
    return alive(traced(kLlama4, {{"image_height", height}, {"image_width", "8"}}), "step1.forward", "pixel_values",
                 Category::inputs);
  };
  EXPECT_EQ(pixels("16"), 3 * pixels("8")) << "two tiles, and the whole once more";
}

TEST(Llama4Vision, FreezesAndAdaptsByName) {
  const Trace frozen = traced(kLlama4, {{"freeze_vision_tower", "true"}});
  EXPECT_EQ(alive(frozen, "step1.forward", "vision_model.model", Category::activations), 0u);
  for (const Parameter& p : frozen.parameters)
    EXPECT_EQ(p.trainable, !p.name.starts_with("vision_model.")) << p.name;
  const Trace lora = traced(kLlama4, {{"method", "lora"}, {"targets", "fc1,linear,linear_1,o_proj"}});
  EXPECT_EQ(adapted(lora, "vision_model.model.layers"), 2 * 2 * 2);
  EXPECT_EQ(adapted(lora, "vision_model.vision_adapter.mlp.fc1"), 2);
  EXPECT_EQ(adapted(lora, "vision_model.patch_embedding.linear"), 2);
  EXPECT_EQ(adapted(lora, "multi_modal_projector"), 2);
  EXPECT_EQ(adapted(lora, "language_model"), 2 * 2);
  EXPECT_EQ(said(kLlama4, {{"seq", "24"}, {"checkpointing", "full-reentrant"}}),
            "unsupported_recipe where=checkpointing read=full-reentrant "
            "expected=tower_wants_non_reentrant_checkpointing nearest=");
  EXPECT_EQ(said(kLlama4, {{"seq", "24"}, {"checkpointing", "full"}}), "ok");
}

}  // namespace
}  // namespace ledger
