// The course's figures through the door, as the course page asks for them.
#include "core/lesson/lesson.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/answer/flops.h"
#include "core/api.h"
#include "core/lesson/rules.h"
#include "core/models/names.h"
#include "core/training/step.h"
#include "tests/answer/json_path.h"
#include "tests/config/fixtures.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

// mistralai/Mixtral-8x7B-v0.1, the keys that sizes depend on.
constexpr const char* kMixtral =
    R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,"num_attention_heads":32,)"
    R"("num_key_value_heads":8,"num_hidden_layers":32,"num_local_experts":8,"num_experts_per_tok":2,)"
    R"("vocab_size":32000,"tie_word_embeddings":false})";

Json asked(const std::string& request) {
  return parsed(lesson(request));
}

double real(const Json& answer, std::string_view path) {
  const auto value = at(answer, path).as_real();
  EXPECT_TRUE(value) << path;
  return value.value_or(NAN);
}

std::string about_llama(const std::string& rest, const char* file = "llama-3.1-8b.json") {
  return R"({"about":"ledger","config":)" + fixture(std::string("configs/") + file) + rest + "}";
}

TEST(Lesson, C1_ATensorInEveryElementType) {
  const Json answer = asked(R"({"about":"tensor","shape":[1000,1000]})");
  EXPECT_EQ(number(answer, "lesson.elements"), 1000000u);
  EXPECT_EQ(text(answer, "lesson.rows.0.dtype"), "fp32");
  EXPECT_EQ(number(answer, "lesson.rows.0.bytes"), 4000000u);
  EXPECT_EQ(number(answer, "lesson.rows.1.bytes"), 2000000u);
  EXPECT_EQ(text(answer, "lesson.rows.3.dtype"), "int8");
  EXPECT_EQ(number(answer, "lesson.rows.3.bytes"), 1000000u);
}

TEST(Lesson, C5ToC8_TheLedgerOfLlama3) {
  const Json full = asked(about_llama(R"(,"recipe":{"seq":4096})"));
  EXPECT_EQ(number(full, "lesson.params"), 8030261248u);
  EXPECT_EQ(number(full, "lesson.per_parameter.resident"), 16u);
  EXPECT_EQ(number(full, "lesson.per_parameter.moments"), 2u);
  EXPECT_EQ(number(full, "lesson.states_bytes"), 16 * std::uint64_t{8030261248});
  EXPECT_EQ(number(full, "lesson.inference.bf16") * 8, number(full, "lesson.states_bytes"));
  EXPECT_EQ(number(full, "lesson.activations.layer_inputs"), kGiB);
  const Json lora = asked(about_llama(R"(,"recipe":{"method":"lora"})"));
  EXPECT_EQ(number(lora, "lesson.trainable"), 41943040u);
  EXPECT_EQ(number(lora, "lesson.states_bytes"), 2 * std::uint64_t{8030261248} + 16 * 41943040);
  const Json qlora = asked(about_llama(R"(,"recipe":{"method":"qlora"})"));
  EXPECT_EQ(number(qlora, "lesson.frozen_bytes"), std::uint64_t{8030261248} * 55 / 100);
}

TEST(Lesson, C12_ScoresAreQuadratic) {
  const auto scores = [](const char* seq) {
    return number(asked(about_llama(std::string(R"(,"recipe":{"seq":)") + seq + "}")), "lesson.activations.scores");
  };
  EXPECT_EQ(scores("4096"), 32 * std::uint64_t{32} * 4096 * 4096 * 2);
  EXPECT_EQ(scores("32768"), 64 * scores("4096"));
}

// The closed form is what the trace of the real code counts, layer by layer.
TEST(Lesson, C13_ComputeIsWhatATraceCounts) {
  ModelConfig config = read_model_config(fixture("configs/llama-3.1-8b.json")).value();
  config.num_hidden_layers = 2;
  Recipe recipe;
  recipe.seq = 4096;
  const Trace trace = trace_step(config, recipe, {.steps = 1, .operands = true, .weights = {}, .adamw = {}}).value();
  EXPECT_EQ(course_forward_flops(config, recipe), step_flops(trace)->layers.forward);
  const Json plain = asked(about_llama(R"(,"recipe":{})"));
  const Json checkpointed = asked(about_llama(R"(,"recipe":{"checkpointing":"full"})"));
  EXPECT_EQ(4 * number(plain, "lesson.compute.total"), 3 * number(checkpointed, "lesson.compute.total"));
}

TEST(Lesson, C15AndC16_ARankOfEight) {
  const Json lora = asked(about_llama(R"(,"recipe":{"method":"lora","dp":8})"));
  EXPECT_EQ(number(lora, "lesson.ranks.ddp.bytes"), number(lora, "lesson.states_bytes"));
  EXPECT_EQ(number(lora, "lesson.ranks.ddp.all_reduce_bytes"), 2 * std::uint64_t{41943040});
  const Json full = asked(about_llama(R"(,"recipe":{"dp":8})"));
  EXPECT_EQ(number(full, "lesson.ranks.fsdp.bytes"), 2 * std::uint64_t{8030261248});
  EXPECT_EQ(number(full, "lesson.ranks.fsdp.backward_gathers"), 32u);
  const Json kept = asked(about_llama(R"(,"recipe":{"dp":8,"reshard_after_forward":false})"));
  EXPECT_EQ(number(kept, "lesson.ranks.fsdp.backward_gathers"), 0u);
}

// The layers' parameters of the cuts are those of the count.
TEST(Lesson, C17_CutsAddUp) {
  const ModelConfig config = read_model_config(fixture("configs/llama-3.1-8b.json")).value();
  const std::uint64_t tables = 2 * std::uint64_t{128256} * 4096, norms = 32 * 2 * 4096;
  EXPECT_EQ(layer_parameters(config), parameter_count(config) - tables - 4096);
  EXPECT_EQ(layer_linear_parameters(config), layer_parameters(config) - norms);
  Recipe recipe;
  recipe.seq = 4096;
  EXPECT_EQ(tensor_cut(config, recipe, 1).params_per_gpu, parameter_count(config));
  const Cut tensor = tensor_cut(config, recipe, 8);
  EXPECT_EQ(tensor.params_per_gpu, tables + 4096 + norms + layer_linear_parameters(config) / 8);
  EXPECT_EQ(tensor.sends, 4u * 32);
  EXPECT_EQ(tensor.bytes, 2u * 4096 * 4096);
  EXPECT_EQ(pipeline_cut(config, recipe, 4).params_per_gpu, layer_parameters(config) / 4 + tables / 2);
  const ModelConfig mixtral = read_model_config(kMixtral).value();
  EXPECT_EQ(expert_cut(mixtral, recipe, 1).params_per_gpu, parameter_count(mixtral));
  const std::uint64_t experts = 32 * 8 * 3 * std::uint64_t{4096} * 14336;
  EXPECT_EQ(expert_cut(mixtral, recipe, 8).params_per_gpu, parameter_count(mixtral) - experts / 8 * 7);
  EXPECT_EQ(expert_cut(mixtral, recipe, 8).bytes, 2 * 2u * 4096 * 4096);
}

TEST(Lesson, C20AndC21_SeventyBillionAsTheReaderRoundsThem) {
  const Json full = asked(about_llama(R"(,"params":70000000000)"));
  EXPECT_EQ(number(full, "lesson.states_bytes"), 1120000000000u);
  const Json lora = asked(about_llama(R"(,"params":70000000000,"trained_per_mille":13,"recipe":{"method":"lora"})"));
  EXPECT_EQ(number(lora, "lesson.frozen_bytes"), 140000000000u);
  EXPECT_EQ(number(lora, "lesson.trained_bytes"), 14560000000u);
}

TEST(Lesson, C22_Bf16SwallowsAnUpdate) {
  const Json answer = asked(R"({"about":"update","weight":1,"update":1e-5,"steps":1000})");
  EXPECT_EQ(text(answer, "lesson.rows.0.format"), "fp32");
  EXPECT_TRUE(at(answer, "lesson.rows.0.moved").as_bool().value());
  EXPECT_EQ(text(answer, "lesson.rows.2.format"), "bf16");
  EXPECT_FALSE(at(answer, "lesson.rows.2.moved").as_bool().value());
  EXPECT_EQ(real(answer, "lesson.rows.2.after"), 1);
  EXPECT_EQ(real(answer, "lesson.rows.2.half_ulp"), 0x1p-8);
  const Json number_at_1 = asked(R"({"about":"number","format":"bf16","value":1.00001})");
  EXPECT_EQ(number(number_at_1, "lesson.bits"), 0x3F80u);
  EXPECT_EQ(real(number_at_1, "lesson.above"), 1 + 0x1p-7);
  EXPECT_EQ(real(number_at_1, "lesson.below"), 1 - 0x1p-8);
}

TEST(Lesson, C23_LossScaling) {
  const Json answer = asked(R"({"about":"scaling","gradients":[1e-8,0.5,2],"scale":65536})");
  EXPECT_EQ(real(answer, "lesson.rows.0.fp16"), 0);
  EXPECT_NEAR(real(answer, "lesson.rows.0.bf16"), 1e-8, 1e-10);
  EXPECT_NEAR(real(answer, "lesson.rows.0.unscaled"), 1e-8, 1e-11);
  EXPECT_FALSE(at(answer, "lesson.rows.1.overflow").as_bool().value());
  EXPECT_TRUE(at(answer, "lesson.rows.2.overflow").as_bool().value());
  EXPECT_TRUE(at(answer, "lesson.skipped").as_bool().value());
  EXPECT_EQ(real(answer, "lesson.next_scale"), 32768);
}

TEST(Lesson, FormatsNameTheirLayouts) {
  const Json answer = asked(R"({"about":"formats"})");
  EXPECT_EQ(at(answer, "lesson.formats").items().size(), 7u);
  EXPECT_EQ(text(answer, "lesson.formats.2.name"), "bf16");
  EXPECT_EQ(number(answer, "lesson.formats.2.exponent_bits"), 8u);
  EXPECT_EQ(number(answer, "lesson.formats.2.mantissa_bits"), 7u);
}

TEST(Lesson, MistakesAreProblems) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "json_syntax"},
      {"{}", "not_one_of"},
      {R"({"about":"poetry"})", "not_one_of"},
      {R"({"about":"number","format":"fp12","value":1})", "not_one_of"},
      {R"({"about":"number","format":"bf16"})", "missing_key"},
      {R"({"about":"number","format":"bf16","bits":65536})", "out_of_range"},
      {R"({"about":"number","format":"bf16","value":"one"})", "wrong_type"},
      {R"({"about":"update","weight":1,"update":1,"steps":0})", "out_of_range"},
      {R"({"about":"scaling","gradients":[1],"scale":0})", "out_of_range"},
      {R"({"about":"tensor","shape":[]})", "missing_key"},
      {R"({"about":"tensor","shape":[18446744073709551615]})", "overflow"},
      {R"({"about":"ledger","config":{"layers":[{"linear":[2,2]}]}})", "unsupported_recipe"},
      {R"({"about":"ledger","config":{"model_type":"gpt17"}})", "unknown_model_type"},
  };
  for (const auto& [request, code] : cases)
    EXPECT_EQ(text(asked(request), "problem.code"), code) << request;
}

}  // namespace
}  // namespace ledger
