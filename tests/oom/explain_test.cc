#include "core/oom/explain.h"

#include <gtest/gtest.h>

#include "core/api.h"
#include "core/config/model_config.h"
#include "probe/explain.h"
#include "probe/oom_texts.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"

namespace ledger::oom {
namespace {

std::string request(std::string_view text, const std::string& report = "null") {
  JsonWriter out;
  out.value(text);
  return "{\"text\":" + out.take() + ",\"report\":" + report + "}";
}

bool possible(const Diagnosis& d, Cause cause) {
  return d.cause == cause || std::find(d.also_possible.begin(), d.also_possible.end(), cause) != d.also_possible.end();
}

std::string message(const char* requested, const char* capacity, const char* allocated,
                    const char* free = "10.00 MiB") {
  return std::string("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ") + requested +
         ". GPU 0 has a total capacity of " + capacity + " of which " + free + " is free. Of the allocated memory " +
         allocated + " is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.";
}

// The course, C14: an error names its block by when it strikes.
TEST(OomCourse, C14WhenItStrikesNamesTheBlock) {
  EXPECT_EQ(explain("model = AutoModelForCausalLM.from_pretrained(\n" + message("100.00 MiB", "24.00 GiB", "23.00 GiB"))
                .diagnosis.cause,
            Cause::weights);
  const Diagnosis backward =
      explain("0%| | 0/100 [00:00<?]\nloss.backward()\n" + message("100.00 MiB", "24.00 GiB", "22.00 GiB")).diagnosis;
  EXPECT_TRUE(possible(backward, Cause::gradients));
  EXPECT_EQ(
      explain("optimizer.step()\n_init_group(\n" + message("100.00 MiB", "24.00 GiB", "22.00 GiB")).diagnosis.cause,
      Cause::optimizer);
  EXPECT_EQ(explain("OOM as soon as max_seq_length grows\nout = model(**inputs)\n" +
                    message("100.00 MiB", "24.00 GiB", "22.00 GiB"))
                .diagnosis.cause,
            Cause::activations);
  const Diagnosis generate =
      explain("out = model.generate(ids)\n" + message("100.00 MiB", "24.00 GiB", "22.00 GiB")).diagnosis;
  EXPECT_TRUE(possible(generate, Cause::kv_cache));
}

TEST(OomExplain, RequestsAreRoundedAsTheAllocatorPrintsThem) {
  EXPECT_EQ(printed_request(512), 2 * kMiB);
  EXPECT_EQ(printed_request(kMiB), 2 * kMiB);
  EXPECT_EQ(printed_request(kMiB + 1), 20 * kMiB);
  EXPECT_EQ(printed_request(10 * kMiB - 1), 20 * kMiB);
  EXPECT_EQ(printed_request(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(printed_request(172 * kMiB + 1), 174 * kMiB);
}

class OomBesideAPrediction : public testing::Test {
 protected:
  OomBesideAPrediction() {
    const Result<ModelConfig> config = read_model_config(
        R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,)"
        R"("num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"num_hidden_layers":8})");
    Recipe recipe;
    recipe.seq = 1024;
    prediction = predict_run(config.value(), recipe).value();
  }
  Explanation explained(const std::string& text) const { return explain_text(text, &prediction); }
  static bool concludes(const Explanation& e, std::string_view id) {
    const auto& all = e.prediction->conclusions;
    return std::any_of(all.begin(), all.end(), [&](const char* c) { return id == c; });
  }
  Prediction prediction;
};

TEST_F(OomBesideAPrediction, TheRequestIsATensorOfTheTrace) {
  // 8192 x 2048 x 2 bytes: 32 MiB, an MLP weight or its gradient.
  const Explanation e = explained("loss.backward()\n" + message("32.00 MiB", "6.00 GiB", "1.60 GiB"));
  ASSERT_TRUE(e.prediction);
  ASSERT_FALSE(e.prediction->matches.empty());
  EXPECT_NE(e.prediction->matches[0].name.find("mlp"), std::string::npos);
  EXPECT_NE(e.prediction->matches[0].category.find("gradients"), std::string::npos);  // of this stage before weights
  EXPECT_FALSE(e.prediction->matches[0].other_dtype);
  EXPECT_EQ(e.prediction->matches[0].bytes, 32 * kMiB);
}

TEST_F(OomBesideAPrediction, AnUnintendedFp32CopyIsSeenByItsSize) {
  const Explanation e =
      explained("model.to(device)\n" + message("250.00 MiB", "6.00 GiB", "1.60 GiB"));  // 32000 x 2048 x 4
  ASSERT_FALSE(e.prediction->matches.empty());
  const auto& matches = e.prediction->matches;
  const auto embedding =
      std::find_if(matches.begin(), matches.end(), [](const TensorMatch& m) { return m.category == "weights"; });
  ASSERT_NE(embedding, matches.end());
  EXPECT_TRUE(embedding->other_dtype);
  EXPECT_EQ(embedding->element_bytes, 4u);
}

TEST_F(OomBesideAPrediction, SmallRequestsNameNoTensor) {
  const Explanation e = explained(message("20.00 MiB", "6.00 GiB", "1.60 GiB"));
  EXPECT_TRUE(e.prediction->request_says_nothing);
  EXPECT_TRUE(e.prediction->matches.empty());
}

TEST_F(OomBesideAPrediction, ItFitsSoSomethingElseIsInForce) {
  const Bytes peak = prediction.replay.peak_allocated_bytes;
  const auto gib_text = [](double gib) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB", gib);
    return std::string(text);
  };
  const double predicted = static_cast<double>(peak) / static_cast<double>(kGiB);
  const std::string capacity = gib_text(predicted * 4);
  EXPECT_TRUE(concludes(explained(message("32.00 MiB", capacity.c_str(), gib_text(predicted * 3.8).c_str())),
                        "sharding_not_in_force"));
  EXPECT_TRUE(concludes(explained(message("32.00 MiB", capacity.c_str(), gib_text(predicted * 1.4).c_str(),
                                          gib_text(predicted * 2.5).c_str())),
                        "longer_batch_than_recipe"));
  EXPECT_TRUE(concludes(explained(message("32.00 MiB", "2.00 GiB", "1.80 GiB")), "prediction_does_not_fit"));
}

TEST_F(OomBesideAPrediction, AdviceSaysWhatItSaves) {
  const Explanation e = explained("optimizer.step()\n_init_group(\n" + message("32.00 MiB", "6.00 GiB", "5.60 GiB"));
  const auto advice = std::find_if(e.advice.begin(), e.advice.end(),
                                   [](const Advice& a) { return std::string_view(a.id) == "eight_bit_optimizer"; });
  ASSERT_NE(advice, e.advice.end());
  EXPECT_GT(advice->saves_bytes.value_or(0), 0u);
}

TEST_F(OomBesideAPrediction, ThePlaceInTheStepIsThePhaseThatReachesIt) {
  ASSERT_EQ(prediction.trace.phases[prediction.replay.phases[0].phase], "load");
  const double loaded =
      static_cast<double>(prediction.replay.phases[0].allocated_peak_bytes) / static_cast<double>(kGiB);
  char allocated[32];
  std::snprintf(allocated, sizeof allocated, "%.2f GiB", loaded + 0.02);
  const Explanation e = explained(message("32.00 MiB", "6.00 GiB", allocated));
  EXPECT_EQ(e.prediction->phase, "step1.forward");
}

TEST(OomApi, AnswersWithADocumentOrAProblem) {
  const Json answer = parsed(explain_oom(
      request("loss.backward()\nCUDA out of memory. Tried to allocate 64.00 MiB (GPU 1; 8.00 GiB total capacity; "
              "7.00 GiB already allocated; 10.00 MiB free; 7.50 GiB reserved in total by PyTorch)")));
  EXPECT_EQ(text(answer, "oom.kind"), "oom");
  EXPECT_EQ(text(answer, "oom.stage"), "backward");
  EXPECT_EQ(number(answer, "oom.messages.0.requested_bytes"), 64 * kMiB);
  EXPECT_TRUE(at(answer, "oom.prediction").is_null());
  EXPECT_TRUE(at(answer, "oom.messages.0.this_process_bytes").is_null());
  EXPECT_EQ(text(parsed(explain_oom("{}")), "problem.code"), "missing_key");
  EXPECT_EQ(text(parsed(explain_oom("{")), "problem.code"), "json_syntax");
}

TEST(OomApi, OfLongTextsTheEndIsRead) {
  const Explanation e = explain(std::string(9u << 20, 'x') + "\nloss.backward()\n");
  EXPECT_LT(e.read_bytes, e.text_bytes);
  EXPECT_EQ(e.diagnosis.stage, Stage::backward);
}

// Every id has a sentence: none is printed as it is.
TEST(OomTexts, EveryAdviceHasASentence) {
  for (const char* id : advice_ids())
    EXPECT_NE(advice_text(id), id);
}

TEST(OomTexts, TerminalsGetNoControlCharactersOfTheLog) {
  const std::string shown = explanation_text(explain("\x1b]0;title\x07 loss.backward() \x1b[2J\n"));
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
  EXPECT_EQ(shown.find('\x07'), std::string::npos);
  EXPECT_NE(shown.find("loss.backward()"), std::string::npos);
}

}  // namespace
}  // namespace ledger::oom
