// What images cost, tensor by tensor: ViT, and decoders behind a tower. Written against transformers 5.12's source.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/answer/advice.h"
#include "tests/models/image_models.h"

namespace ledger {
namespace {

using namespace image_models;

// 16 patches and a class token, heads of 8.
constexpr const char* kVit = R"({"model_type":"vit","hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
  "num_attention_heads":4,"image_size":32,"patch_size":8,"num_labels":10})";

// 4 patches, of which a text sees 4 tokens; features of the third of four layers.
constexpr const char* kLlava = R"({"model_type":"llava","image_token_index":7,"text_config":{"model_type":"llama",
  "hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":48,
  "vocab_size":61},"vision_config":{"model_type":"clip_vision_model","hidden_size":24,"intermediate_size":40,
  "num_hidden_layers":4,"num_attention_heads":2,"image_size":8,"patch_size":4}})";

constexpr const char* kGemma3 = R"({"model_type":"gemma3","image_token_index":7,"mm_tokens_per_image":4,
  "text_config":{"model_type":"gemma3_text","hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,
  "num_key_value_heads":1,"head_dim":16,"intermediate_size":48,"vocab_size":61,"sliding_window":512,
  "sliding_window_pattern":2},"vision_config":{"model_type":"siglip_vision_model","hidden_size":24,
  "intermediate_size":40,"num_hidden_layers":2,"num_attention_heads":2,"image_size":16,"patch_size":4,
  "vision_use_head":false}})";

// A token of a layer in bf16: inputs and results of two norms, queries, keys, values and the result 16 h, GELU's input
// and result 4 ffn, statistics and a number a head; and the kernel's random state.
TEST(Vit, ALayerKeepsWhatTheMemoryModelSays) {
  const Trace trace = traced(kVit, {});
  const Bytes tokens = 2 * 17, h = 32, ffn = 48, heads = 4;
  EXPECT_EQ(alive(trace, "step1.forward", "vit.layers.*", Category::activations),
            2 * (tokens * (16 * h + 4 * ffn + 4 * heads + 16) + 24));
}

TEST(Vit, PixelsComeInFp32AndAreKeptInTheModelsDtype) {
  const Trace trace = traced(kVit, {});
  const Bytes pixels = 2 * 3 * 32 * 32, embedded = 2 * 2 * 17 * 32;
  EXPECT_EQ(alive(trace, "step1.forward", "pixel_values", Category::inputs), 4 * pixels);
  EXPECT_EQ(alive(trace, "step1.forward", "labels", Category::inputs), 2 * 8u);
  EXPECT_EQ(alive(trace, "step1.forward", "vit.embeddings", Category::activations), embedded);
  EXPECT_EQ(alive(trace, "step1.forward", "vit", Category::activations) -
                alive(trace, "step1.forward", "vit.l", Category::activations),
            2 * pixels + embedded);
}

TEST(ImageText, WhatNoLossDependsOnHasNoGradientAndNoStates) {
  const Trace trace = traced(kLlava, {});
  const auto untouched = [](const Parameter& p) { return p.gradient == kNoStorage; };
  for (const Parameter& p : trace.parameters) {
    const bool unused = p.name.starts_with("model.vision_tower.encoder.layers.3.") ||
                        p.name.starts_with("model.vision_tower.post_layernorm.");
    EXPECT_EQ(untouched(p), unused) << p.name;
  }
  std::uint64_t updated = 0;
  for (const Parameter& p : trace.parameters)
    updated += untouched(p) ? 0 : trace.storages[p.storage].shape.numel();
  EXPECT_EQ(alive(trace, "step2.backward", "adamw.exp_avg", Category::optimizer_states), 2 * 2 * updated);
}

// The layer whose features are not read ran for nobody: nothing of it is left when the step's forward pass is over.
TEST(ImageText, LayersBehindTheFeaturesKeepNothing) {
  const Trace trace = traced(kLlava, {});
  std::vector<std::int32_t> layers;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
    if (event.type == EventType::alloc) {
      const StorageInfo& s = trace.storages[event.id];
      if (trace.names[s.scope].starts_with("model.vision_tower.encoder") && s.category == Category::activations)
        layers.push_back(s.layer);
    }
    if (event.type == EventType::free) {
      const StorageInfo& s = trace.storages[event.id];
      if (trace.names[s.scope].starts_with("model.vision_tower.encoder") && s.category == Category::activations)
        layers.erase(std::find(layers.begin(), layers.end(), s.layer));
    }
  }
  EXPECT_EQ(std::count(layers.begin(), layers.end(), 3), 0);
  EXPECT_GT(std::count(layers.begin(), layers.end(), 2), 0);
}

TEST(ImageText, AFrozenTowerHasWeightsAlone) {
  for (const char* text : {kLlava, kGemma3}) {
    const Trace trace = traced(text, {{"freeze_vision_tower", "true"}});
    EXPECT_GT(alive(trace, "step1.backward", "model.vision_tower", Category::weights), 0u);
    EXPECT_EQ(alive(trace, "step1.forward", "model.vision_tower", Category::gradients), 0u);
    EXPECT_EQ(alive(trace, "step1.backward", "model.vision_tower", Category::gradients), 0u);
    EXPECT_GT(alive(trace, "step1.backward", "model.multi_modal_projector", Category::gradients), 0u);
    for (const Parameter& p : trace.parameters)
      EXPECT_EQ(p.trainable, !p.name.starts_with("model.vision_tower.")) << p.name;
  }
  // The chosen features themselves are the projector's to keep, and nothing else of the tower is.
  const Trace trace = traced(kLlava, {{"freeze_vision_tower", "true"}});
  EXPECT_EQ(alive(trace, "step1.forward", "model.vision_tower", Category::activations), 0u);
}

TEST(ImageText, AdaptersReachTheTowerUnlessItIsFrozen) {
  const Trace all = traced(kLlava, {{"method", "lora"}});
  EXPECT_EQ(adapted(all, "vision_tower"), 2 * 6 * 4);
  EXPECT_EQ(adapted(all, "multi_modal_projector"), 2 * 2);
  EXPECT_EQ(adapted(all, "language_model"), 2 * 7 * 2);
  EXPECT_EQ(adapted(all, "lm_head"), 0);
  const Trace frozen = traced(kLlava, {{"method", "lora"}, {"freeze_vision_tower", "true"}});
  EXPECT_EQ(adapted(frozen, "vision_tower"), 0);
  EXPECT_EQ(adapted(frozen, "multi_modal_projector"), 2 * 2);
  const Trace queries = traced(kLlava, {{"method", "lora"}, {"targets", "q_proj"}});
  EXPECT_EQ(adapted(queries, "vision_tower"), 2 * 4) << "a name is looked for everywhere";
  EXPECT_EQ(adapted(queries, "language_model"), 2 * 2);
}

// PEFT makes the outputs of both embeddings need a gradient where it checkpoints; then a frozen tower saves again.
TEST(ImageText, CheckpointingUnderPeftReachesAFrozenTower) {
  const Settings frozen{{"method", "lora"}, {"freeze_vision_tower", "true"}};
  const Settings both{{"method", "lora"}, {"freeze_vision_tower", "true"}, {"checkpointing", "full"}};
  EXPECT_EQ(alive(traced(kGemma3, frozen), "step1.forward", "model.vision_tower.encoder", Category::activations), 0u);
  EXPECT_GT(alive(traced(kGemma3, both), "step1.forward", "model.vision_tower.encoder", Category::activations), 0u);
}

TEST(ImageText, EveryImageCostsAnotherPassThroughTheTower) {
  const auto tower = [](const char* images) {
    return alive(traced(kLlava, {{"images", images}}), "step1.forward", "model.vision_tower.encoder",
                 Category::activations);
  };
  EXPECT_EQ(tower("4") - tower("1"), 3 * (tower("2") - tower("1"))) << "but for a kernel's random state";
}

TEST(ImageText, ImagesThatDoNotFitAreRefused) {
  EXPECT_EQ(said(kLlava, {{"seq", "10"}, {"images", "2"}}), "ok");
  EXPECT_EQ(said(kLlava, {{"seq", "9"}, {"images", "2"}}),
            "unsupported_recipe where=images read=2 expected=images_do_not_fit nearest=");
  EXPECT_EQ(said(kGemma3, {{"attention", "math"}}),
            "unsupported_recipe where=attention read=math expected=image_mask_not_modelled nearest=");
  EXPECT_EQ(said(kLlava, {{"dp", "2"}}),
            "unsupported_recipe where=dp read=2 expected=image_parallelism_not_modelled nearest=");
  EXPECT_EQ(said(kVit, {{"dp", "2"}}), "ok");
  EXPECT_EQ(said(kVit, {{"dp", "2"}, {"zero", "2"}}), "ok");
  EXPECT_EQ(said(kVit, {{"method", "qlora"}}),
            "unsupported_recipe where=method read=qlora expected=encoder_base_not_quantised nearest=");
}

// The search for the longest sequence begins where the images fit.
TEST(ImageText, TheLongestSequenceHasRoomForItsImages) {
  Recipe recipe = recipe_of({{"batch", "1"}, {"seq", "40"}, {"images", "3"}});
  recipe.memory_limit_bytes = 2'000'000'000;
  const Result<Solution> longest = solve(config_of(kLlava), recipe, Unknown::seq);
  ASSERT_EQ(outcome(longest), "ok");
  EXPECT_GT(longest.value().value, 40u);
}

// Every layer saves a bias of 16 bits for each pair of tokens, as wide as its kernel wants it.
TEST(Gemma3, MasksOfImagesGoToEveryLayer) {
  const Trace trace = traced(kGemma3, {});
  const Trace flash = traced(kGemma3, {{"attention", "flash"}});
  const Bytes with = alive(trace, "step1.forward", "model.language_model.layers.*.self_attn", Category::activations);
  const Bytes without = alive(flash, "step1.forward", "model.language_model.layers.*.self_attn", Category::activations);
  EXPECT_GE(with, without + 2 * 2 * 2 * 24 * 24);
}

TEST(ImageText, VariantsThatNoModuleBuildsAreRefused) {
  const auto untraced = [](const char* text, const char* from, const char* to) {
    return config_of(changed(text, from, to).c_str()).untraced;
  };
  EXPECT_EQ(untraced(kLlava, R"("image_token_index":7)", R"("image_token_index":61)"), "variant_step_not_modelled");
  EXPECT_EQ(untraced(kLlava, R"("image_token_index":7)", R"("image_token_index":7,"vision_feature_layer":[-2,-3])"),
            "variant_step_not_modelled");
  EXPECT_EQ(untraced(kLlava, R"("image_token_index":7)", R"("image_token_index":7,"vision_feature_layer":-6)"),
            "variant_step_not_modelled");
  EXPECT_EQ(untraced(kGemma3, R"("vision_use_head":false)", R"("vision_use_head":true)"), "variant_step_not_modelled");
  EXPECT_EQ(untraced(kGemma3, R"("mm_tokens_per_image":4)", R"("mm_tokens_per_image":5)"), "variant_step_not_modelled");
  EXPECT_EQ(untraced(kVit, R"("num_labels":10)", R"("num_labels":1)"), "variant_step_not_modelled");
  EXPECT_EQ(untraced(kVit, R"("num_labels":10)", R"("hidden_act":"gelu_fast")"), "variant_step_not_modelled");
  EXPECT_EQ(untraced(kLlava, R"("image_token_index":7)", R"("image_token_index":7,"projector_hidden_act":"mish")"),
            "variant_step_not_modelled");
  EXPECT_EQ(untraced(kVit, R"("num_labels":10)", R"("num_labels":10,"architectures":["ViTModel"])"),
            "variant_step_not_modelled");
}

}  // namespace
}  // namespace ledger
