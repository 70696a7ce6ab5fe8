// T5: what its encoder and decoder keep, which length the recipe gives to whom, and what is refused.
#include <gtest/gtest.h>

#include <map>

#include "core/answer/prediction.h"
#include "core/training/step.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

ModelConfig t5(const char* more = "") {
  const Result<ModelConfig> config = read_model_config(
      std::string(
          R"({"model_type":"t5","d_model":48,"d_kv":8,"num_heads":3,"d_ff":64,"num_layers":4,"vocab_size":97)") +
      more + "}");
  EXPECT_EQ(outcome(config), "ok");
  return config.value();
}

Recipe small() {
  Recipe recipe;
  recipe.batch = 2;
  recipe.seq = 10;
  recipe.decoder_seq = 7;
  return recipe;
}

Trace traced(const ModelConfig& config, const Recipe& recipe) {
  Result<Trace> trace = trace_step(config, recipe);
  EXPECT_EQ(outcome(trace), "ok");
  return trace.ok() ? std::move(trace.value()) : Trace();
}

// Bytes alive when the first backward pass begins, by what made them; of attention's scores alone where `scores`.
std::map<OpKind, Bytes> kept(const Trace& trace, bool scores) {
  std::map<StorageId, const StorageInfo*> alive;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
    if (event.type == EventType::alloc) alive[event.id] = &trace.storages[event.id];
    if (event.type == EventType::free) alive.erase(event.id);
  }
  std::map<OpKind, Bytes> bytes;
  for (const auto& [id, storage] : alive) {
    const bool of_attention = trace.names[storage->scope].ends_with("Attention");
    if (!scores || (of_attention && storage->shape.rank == 4 && storage->op != OpKind::clone))
      bytes[storage->op] += storage->bytes;
  }
  return bytes;
}

// Probabilities in fp32, what dropout left of them in 16 bits, and its mask.
TEST(EncoderDecoder, KeepsSevenBytesAScore) {
  const std::map<OpKind, Bytes> bytes = kept(traced(t5(), small()), true);
  const Bytes scores = Bytes{2 * 3 * 4} * (10 * 10 + 7 * 7 + 7 * 10);  // batch, heads, layers; encoder, decoder, across
  EXPECT_EQ(bytes.at(OpKind::softmax), 4 * scores);
  EXPECT_EQ(bytes.at(OpKind::dropout), 3 * scores);
  EXPECT_FALSE(bytes.contains(OpKind::to_copy)) << "nothing needs the cast probabilities once they were dropped out";
  const std::map<OpKind, Bytes> plain = kept(traced(t5(R"(,"dropout_rate":0.0)"), small()), true);
  EXPECT_EQ(plain.at(OpKind::softmax), 4 * scores);
  EXPECT_EQ(plain.at(OpKind::to_copy), 2 * scores);
  EXPECT_FALSE(plain.contains(OpKind::dropout));
}

// One bias a stack, of whose table the places of rows are kept, and one of zeros that nobody has to keep.
TEST(EncoderDecoder, SharesTheFirstLayersBiases) {
  const Trace trace = traced(t5(), small());
  std::size_t made = 0;
  for (const StorageInfo& storage : trace.storages)
    made += storage.op == OpKind::relative_buckets ? 1 : 0;
  EXPECT_EQ(made, 2u * 2) << "two steps";
  const std::map<OpKind, Bytes> bytes = kept(trace, false);
  EXPECT_EQ(bytes.at(OpKind::relative_buckets) + bytes.at(OpKind::add_scalar), 8u * (10 * 10 + 7 * 7));
  EXPECT_FALSE(bytes.contains(OpKind::bookkeeping));
}

TEST(EncoderDecoder, ReadsAsManyTargetsAsTokensUnlessToldOtherwise) {
  const auto peak = [](std::uint64_t targets) {
    Recipe recipe = small();
    recipe.decoder_seq = targets;
    const Result<Prediction> prediction = predict_run(t5(), recipe);
    EXPECT_EQ(outcome(prediction), "ok");
    return prediction.value().replay.peak_tensor_bytes;
  };
  EXPECT_EQ(peak(0), peak(10));
  EXPECT_LT(peak(7), peak(10));
  EXPECT_LT(peak(1), peak(2));
}

TEST(EncoderDecoder, OutputsAreScaledUnlessTheFileSaysThatTheyWereUntied) {
  EXPECT_TRUE(t5().t5.scales_outputs);
  EXPECT_TRUE(t5(R"(,"tie_word_embeddings":null)").t5.scales_outputs);
  EXPECT_FALSE(t5(R"(,"tie_word_embeddings":false)").t5.scales_outputs);
  EXPECT_FALSE(t5(R"(,"tie_word_embeddings":true,"scale_decoder_outputs":false)").t5.scales_outputs);
  EXPECT_EQ(t5(R"(,"feed_forward_proj":"gated-gelu")").act, Act::gelu_new);
  EXPECT_EQ(t5(R"(,"feed_forward_proj":"gated-silu")").act, Act::silu);
  EXPECT_EQ(t5(R"(,"feed_forward_proj":"gelu")").act, Act::gelu);
  EXPECT_EQ(t5().act, Act::relu);
}

// bitsandbytes leaves `wo` alone; prepared for training it is fp32.
TEST(EncoderDecoder, QloraLeavesTheSecondProductOfTheMlpAsItIs) {
  Recipe recipe = small();
  recipe.method = Method::qlora;
  const Trace trace = traced(t5(), recipe);
  std::size_t whole = 0, packed = 0;
  for (const Parameter& parameter : trace.parameters) {
    const StorageInfo& storage = trace.storages[parameter.storage];
    if (parameter.name.ends_with("DenseReluDense.wo.weight")) {
      EXPECT_EQ(storage.dtype, DType::f32) << parameter.name;
      EXPECT_EQ(storage.bytes, 4u * 48 * 64) << parameter.name;
      ++whole;
    } else if (storage.op == OpKind::quantise) {
      ++packed;
    }
  }
  EXPECT_EQ(whole, 8u);
  EXPECT_EQ(packed, 4u * (4 + 1) + 4u * (8 + 1));
}

TEST(EncoderDecoder, RefusesByName) {
  const auto said = [](void (*set)(Recipe&)) {
    Recipe recipe = small();
    set(recipe);
    return outcome(predict_run(t5(), recipe));
  };
  const std::string where = "unsupported_recipe where=";
  EXPECT_EQ(said([](Recipe& r) { r.checkpointing = Checkpointing::full_reentrant; }),
            where + "checkpointing read=full-reentrant expected=encoder_decoder_checkpoints_in_full nearest=");
  EXPECT_EQ(said([](Recipe& r) { r.checkpointing = Checkpointing::selective; }),
            where + "checkpointing read=selective expected=encoder_decoder_checkpoints_in_full nearest=");
  EXPECT_EQ(said([](Recipe& r) { r.attention = Attention::flash; }),
            where + "attention read=flash expected=family_attention_not_modelled nearest=");
  EXPECT_EQ(said([](Recipe& r) { r.loss = Loss::chunked; }),
            where + "loss read=chunked expected=loss_not_modelled nearest=");
  EXPECT_EQ(said([](Recipe& r) { r.fsdp = 2, r.dp = 2; }),
            where + "fsdp read=2 expected=parallelism_not_modelled nearest=");
  EXPECT_EQ(said([](Recipe& r) { r.zero = 3, r.dp = 2; }),
            where + "zero read=3 expected=parallelism_not_modelled nearest=");
  EXPECT_EQ(said([](Recipe& r) { r.stack = Stack::hf_4; }),
            where + "stack read=hf-4 expected=old_modules_not_modelled nearest=");
  for (void (*set)(Recipe&) :
       {+[](Recipe& r) { r.precision = Precision::amp_bf16; }, +[](Recipe& r) { r.precision = Precision::amp_fp16; },
        +[](Recipe& r) { r.precision = Precision::fp32; }, +[](Recipe& r) { r.autocast = true; },
        +[](Recipe& r) { r.checkpointing = Checkpointing::full; }, +[](Recipe& r) { r.grad_accum = 3; },
        +[](Recipe& r) { r.zero = 2, r.dp = 2; }, +[](Recipe& r) { r.dp = 4; },
        +[](Recipe& r) { r.optimizer = Optimizer::adafactor_hf; }, +[](Recipe& r) { r.method = Method::lora; },
        +[](Recipe& r) { r.keep_outputs = true; }})
    EXPECT_EQ(said(set), "ok");
}

TEST(EncoderDecoder, AloneReadsTwoLengths) {
  const Result<ModelConfig> config = read_model_config(R"({"model_type":"llama","num_hidden_layers":1})");
  EXPECT_EQ(outcome(predict_run(config.value(), small())),
            "unsupported_recipe where=decoder_seq read=7 expected=decoder_seq_needs_an_encoder nearest=");
}

}  // namespace
}  // namespace ledger
