// Pipelines of the stack `megatron`: which layers and how many micro-batches a stage holds, and what it is sent.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/memory/census.h"
#include "tests/parallel/megatron_runs.h"

namespace ledger {
namespace {

// Stage r keeps p - r micro-batches, so every stage but the first and the last differs from the next by one of them.
TEST(Megatron, EarlierStagesHoldMoreMicroBatches) {
  const ModelConfig config = gpt(256, 8, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.pp = 8;
  recipe.micro_batches = 16;
  recipe.attention = Attention::eager;
  const Bytes layer = activations_of_a_layer(gpt(256, 2, 4, 128), [&] {
    Recipe one = recipe;
    one.pp = one.micro_batches = 1;
    return one;
  }());
  for (std::uint64_t stage = 1; stage + 2 < recipe.pp; ++stage) {
    EXPECT_EQ(played(config, recipe, stage).peak_tensor_bytes - played(config, recipe, stage + 1).peak_tensor_bytes,
              layer + 2 /* an element in place of the output */)
        << stage;
  }
  EXPECT_EQ(micro_batches_in_flight(0, 8, 16), 8u);
  EXPECT_EQ(micro_batches_in_flight(7, 8, 16), 1u);
  EXPECT_EQ(micro_batches_in_flight(0, 8, 3), 3u);
}

// Korthikanti, section 4.2.3: with v chunks a stage the first one holds L (1 + (p - 1) / (p v)) layers' activations; a
// stage r behind it 2 r chunks fewer. Chunks have a layer here, and only those of middle stages are alike.
TEST(Megatron, InterleavedStagesHoldMoreLayers) {
  const std::uint64_t p = 4, v = 3;
  const ModelConfig config = gpt(256, p * v, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.attention = Attention::eager;
  const Bytes layer = activations_of_a_layer(gpt(256, 2, 4, 128), recipe), tensor = 2 * 128 * 256 * 2;
  recipe.pp = p;
  recipe.micro_batches = 16;
  recipe.pipeline_schedule = PipelineSchedule::interleaved;
  for (const std::uint64_t stage : {1u, 2u}) {
    const std::uint64_t in_flight = p * v + p - 1 - 2 * stage;
    const Result<Trace> trace = trace_megatron(config, recipe, stage);
    ASSERT_TRUE(trace.ok()) << trace.problem().expected;
    const std::string last = "step1." + std::to_string(in_flight) + ".forward";
    Bytes held = 0;
    const Replay r = replay(trace.value(), {});
    for (const PhasePeak& phase : r.phases)
      held = trace.value().phases[phase.phase] == last ? phase.end_bytes - r.phases.front().end_bytes : held;
    // An element in place of each output that was sent; the last output, which is sent and not yet let go; the next
    // input, and the first gradient, for which there is memory already.
    EXPECT_EQ(held, in_flight * layer + (in_flight - 1) * 2 + 3 * tensor) << stage;
  }
}

// TransformerBlock.input_tensor: each chunk's last input, and with it its gradient, until its next micro-batch.
TEST(Megatron, LastInputsAndTheirGradientsStayBetweenSteps) {
  const std::uint64_t p = 2, v = 3;
  const ModelConfig config = gpt(256, p * v, 4, 128);
  Recipe recipe = megatron(2, 128);
  recipe.pp = p;
  recipe.micro_batches = 4;
  const auto kept = [&](std::uint64_t stage) {
    const Result<Trace> trace = trace_megatron(config, recipe, stage);
    EXPECT_TRUE(trace.ok());
    Census census(trace.value());
    for (const Event& event : trace.value().events)
      census.apply(event);
    std::uint64_t count = 0;
    for (StorageId id = 0; id < trace.value().storages.size(); ++id) {
      const Shape& shape = trace.value().storages[id].shape;
      const bool activation = shape.same_sizes({{128, Sym::none}, {2, Sym::none}, {256, Sym::none}});
      count += activation && census.alive(id) ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(kept(0), 0u);
  EXPECT_EQ(kept(1), 2u);
  recipe.pipeline_schedule = PipelineSchedule::interleaved;
  EXPECT_EQ(kept(0), 2 * (v - 1));  // its first chunk receives nothing
  EXPECT_EQ(kept(1), 2 * v);
}

// send_forward_recv_backward: memory of the gradient that comes is taken before deallocate_output_tensor.
TEST(Megatron, AnOutputThatIsSentOutlivesTheReceiptOfItsGradient) {
  Recipe recipe = megatron(2, 128);
  recipe.pp = 2;
  recipe.micro_batches = 4;
  const Result<Trace> traced =
      trace_megatron(gpt(256, 2, 4, 128), recipe, 0, {.steps = 1, .operands = true, .every_micro_batch = true});
  ASSERT_TRUE(traced.ok());
  const Trace& trace = traced.value();
  std::uint64_t let_go_at_once = 0, let_go_after = 0;
  StorageId output = kNoStorage;
  bool received = false;
  for (const Event& event : trace.events) {
    if (event.type == EventType::run && trace.runs[event.id].op == OpKind::send) {
      output = trace.views[trace.runs[event.id].first_view].storage;
      received = false;
    }
    received = received || (event.type == EventType::alloc && trace.storages[event.id].op == OpKind::receive);
    if (event.type != EventType::free || event.id != output) continue;
    ++(received ? let_go_after : let_go_at_once);
    output = kNoStorage;
  }
  EXPECT_EQ(let_go_at_once, 1u);  // of the micro-batch that warms up
  EXPECT_EQ(let_go_after, 3u);
}

// 6 layers on 4 stages: embedding and loss count as one each, so stages have 1, 2, 2 and 1.
TEST(Megatron, EmbeddingAndLossStandForALayerWhereStagesWouldBeUneven) {
  ModelConfig c = gpt(256, 6, 4, 128);
  c.tie_word_embeddings = false;
  Recipe r = megatron(1, 128);
  r.pp = 4;
  r.micro_batches = 8;
  for (const PipelineSchedule schedule : {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved}) {
    r.pipeline_schedule = schedule;
    std::uint64_t all = 0;
    std::vector<std::size_t> products;
    for (std::uint64_t stage = 0; stage < 4; ++stage) {
      const Result<Trace> trace = trace_megatron(c, r, stage);
      ASSERT_TRUE(trace.ok());
      for (const Parameter& parameter : trace.value().parameters)
        all += trace.value().storages[parameter.storage].shape.numel();
      products.push_back(static_cast<std::size_t>(
          std::count_if(trace.value().parameters.begin(), trace.value().parameters.end(),
                        [](const Parameter& p) { return p.name.ends_with("linear_fc1.weight"); })));
    }
    EXPECT_EQ(products, (std::vector<std::size_t>{1, 2, 2, 1}));
    EXPECT_EQ(all, parameter_count(c));
  }
  r.pp = 5;  // divides neither 6 nor 8
  ASSERT_TRUE(unsupported_in_megatron(c, r));
  EXPECT_EQ(unsupported_in_megatron(c, r)->expected, "pp_cuts_layers_evenly");
}

std::vector<std::uint64_t> layers_of(const Trace& trace) {
  std::vector<std::uint64_t> layers;
  for (const Parameter& p : trace.parameters) {
    if (p.name.ends_with("linear_fc1.weight")) layers.push_back(std::stoull(p.name.substr(15)));  // decoder.layers.
  }
  return layers;
}

// --decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers: the stages between share the rest.
TEST(Megatron, TheFirstAndTheLastStageHaveAsManyLayersAsIsSaid) {
  using Layers = std::vector<std::uint64_t>;
  const ModelConfig c = gpt(64, 7, 4, 64);
  Recipe r = megatron(1, 64);
  r.pp = 4;
  r.micro_batches = 4;
  r.decoder_first_pipeline_num_layers = 1;
  r.decoder_last_pipeline_num_layers = 2;
  const auto stage = [&](std::uint64_t number) {
    const Result<Trace> trace = trace_megatron(c, r, number);
    EXPECT_TRUE(trace.ok()) << (trace.ok() ? "" : trace.problem().expected);
    return trace.ok() ? layers_of(trace.value()) : Layers{};
  };
  EXPECT_EQ(stage(0), (Layers{0}));
  EXPECT_EQ(stage(1), (Layers{1, 2}));
  EXPECT_EQ(stage(2), (Layers{3, 4}));
  EXPECT_EQ(stage(3), (Layers{5, 6}));
  r.decoder_last_pipeline_num_layers = 0;
  EXPECT_EQ(stage(0), (Layers{0}));
  EXPECT_EQ(stage(3), (Layers{5, 6}));
  r.pp = 2;
  r.decoder_last_pipeline_num_layers = 6;
  EXPECT_EQ(stage(1), (Layers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(r.decoder_first_pipeline_num_layers, 1u);
}

TEST(Megatron, StagesOfUnequalLayersWantAPlainPipeline) {
  const ModelConfig c = gpt(64, 7, 4, 64);
  Recipe r = megatron(1, 64);
  r.pp = 4;
  r.micro_batches = 4;
  r.decoder_first_pipeline_num_layers = 1;
  const auto reason = [&] {
    const std::optional<Problem> refused = unsupported_in_megatron(c, r);
    return refused ? refused->expected : "";
  };
  EXPECT_EQ(reason(), "");
  r.decoder_first_pipeline_num_layers = 2;  // 5 are left for three stages
  EXPECT_EQ(reason(), "stages_of_unequal_layers");
  for (const std::uint64_t all : {7u, 8u}) {
    r.decoder_first_pipeline_num_layers = all;
    EXPECT_EQ(reason(), "stages_of_unequal_layers");
  }
  r.decoder_first_pipeline_num_layers = 1;
  r.pipeline_schedule = PipelineSchedule::interleaved;
  EXPECT_EQ(reason(), "stages_of_unequal_layers");
  r.pipeline_schedule = PipelineSchedule::one_f_one_b;
  r.pp = 1;
  EXPECT_EQ(reason(), "stages_of_unequal_layers");
  r.pp = 2;
  r.decoder_last_pipeline_num_layers = 5;
  EXPECT_EQ(reason(), "stages_of_unequal_layers");
}

// --num-layers-per-virtual-pipeline-stage: chunk by chunk through the stages.
TEST(Megatron, ChunksHaveAsManyLayersAsIsSaid) {
  using Layers = std::vector<std::uint64_t>;
  const ModelConfig c = gpt(64, 12, 4, 64);
  Recipe r = megatron(1, 64);
  r.pp = 2;
  r.micro_batches = 4;
  r.pipeline_schedule = PipelineSchedule::interleaved;
  r.num_layers_per_virtual_pipeline_stage = 3;
  EXPECT_EQ(layers_of(trace_megatron(c, r, 0).value()), (Layers{0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(layers_of(trace_megatron(c, r, 1).value()), (Layers{3, 4, 5, 9, 10, 11}));
  const Bytes chunked = played(c, r, 0).peak_tensor_bytes;
  r.num_layers_per_virtual_pipeline_stage = 6;  // one chunk: no interleaving
  const Bytes whole = played(c, r, 0).peak_tensor_bytes;
  EXPECT_LT(whole, chunked);
  r.num_layers_per_virtual_pipeline_stage = 5;
  ASSERT_TRUE(unsupported_in_megatron(c, r));
  EXPECT_EQ(unsupported_in_megatron(c, r)->expected, "chunks_cut_interleaved_stages");
  r.pipeline_schedule = PipelineSchedule::one_f_one_b;
  r.num_layers_per_virtual_pipeline_stage = 3;
  ASSERT_TRUE(unsupported_in_megatron(c, r));
  EXPECT_EQ(unsupported_in_megatron(c, r)->expected, "chunks_cut_interleaved_stages");
  r.num_layers_per_virtual_pipeline_stage = 1;
  r.decoder_first_pipeline_num_layers = r.decoder_last_pipeline_num_layers = 6;
  EXPECT_EQ(played(c, r, 0).peak_tensor_bytes, whole);
}

TEST(Megatron, InterleavingTakesMicroBatchesInGroups) {
  Recipe recipe = megatron(1, 64);
  recipe.pp = 2;
  recipe.micro_batches = 3;
  recipe.pipeline_schedule = PipelineSchedule::interleaved;
  const auto refused = unsupported_in_megatron(gpt(128, 4, 4, 64), recipe);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->where, "micro_batches");
  EXPECT_EQ(refused->expected, "interleaving_takes_micro_batches_in_groups");
  recipe.micro_batches = 4;
  EXPECT_FALSE(unsupported_in_megatron(gpt(128, 4, 4, 64), recipe));
}

TEST(Megatron, MoreMicroBatchesThanStagesChangeNothing) {
  const ModelConfig config = gpt(128, 4, 4, 64);
  Recipe recipe = megatron(1, 64);
  recipe.pp = 4;
  recipe.micro_batches = 8;
  const Bytes peak = played(config, recipe, 1).peak_tensor_bytes;
  recipe.micro_batches = 1000000;
  EXPECT_EQ(played(config, recipe, 1).peak_tensor_bytes, peak);
}

}  // namespace
}  // namespace ledger
