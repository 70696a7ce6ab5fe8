// torchtitan's decoder by hand: what a layer keeps for backward under each kind of checkpointing, and what the loss
// holds.
//
// Letters: T = b*s tokens, H hidden, F ffn, Dq = nh*d = H, Dkv = nkv*d. Keys and values are repeated at all query
// heads, so attention saves 3 T Dq of operands. Source: torchtitan models/llama3/model/model.py and PyTorch's
// derivatives.yaml.
#include "core/models/torchtitan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/memory/replay.h"
#include "core/training/step.h"
#include "tests/training/runs.h"

namespace ledger {
namespace {

constexpr std::uint64_t kH = 64, kF = 160, kHeads = 8, kKvHeads = 4, kD = 8, kV = 97, kB = 2, kS = 16, kT = kB * kS;
constexpr std::uint64_t kKv = kKvHeads * kD;
constexpr std::uint64_t kMatrices = 2 * kH * kH + 2 * kH * kKv + 3 * kH * kF, kNorms = 2 * kH;
constexpr Bytes kFlashState = 16 + 8, kCudnnState = 8 + 8;  // of dropout: uint8 [16] and [8]; two int64

ModelConfig llama(std::uint64_t layers, std::uint64_t vocabulary) {
  ModelConfig config = odd_llama(layers);
  config.hidden_size = kH;
  config.intermediate_size = kF;
  config.num_attention_heads = kHeads;
  config.num_key_value_heads = kKvHeads;
  config.head_dim = kD;
  config.vocab_size = vocabulary;
  return config;
}

Trace traced(std::uint64_t layers, Settings settings) {
  Recipe recipe = recipe_of(settings);
  recipe.batch = kB;
  recipe.seq = kS;
  const std::uint64_t vocabulary = recipe.tp == 1 ? kV : kV - 1;  // an odd number of rows is cut by nothing
  const Result<Trace> trace = trace_step(llama(layers, vocabulary), recipe, {.steps = 1, .weights = {}, .adamw = {}});
  EXPECT_TRUE(trace.ok());
  return trace.ok() ? trace.value() : Trace();
}

// What a layer adds to the end of the first forward pass beside its weights.
Bytes kept_by_a_layer(const Settings& settings, std::uint64_t tp = 1) {
  const auto after_forward = [&](std::uint64_t layers) {
    return replay(traced(layers, settings), {}).phases.at(1).end_bytes;
  };
  const Bytes three = after_forward(3), two = after_forward(2);
  EXPECT_EQ(two - after_forward(1), three - two);
  return three - two - 2 * (kMatrices / tp + kNorms);
}

// Attention: queries, keys, values and the result 2 H each, logsumexp 4 a head. MLP: w1's result, silu's, w3's and
// their product 2 F each.
constexpr Bytes kAttention = kT * (8 * kH + 4 * kHeads), kFeed = kT * 8 * kF;

// Two norms: input 2 H (the residual stream), rstd 4, result 2 H, which the projections save.
TEST(Torchtitan, ALayerKeepsWhatItsOperatorsSave) {
  EXPECT_EQ(kept_by_a_layer({{"stack", "torchtitan"}}),
            kT * 2 * (2 * kH + 4 + 2 * kH) + kAttention + kCudnnState + kFeed);
}

// The norm written out: the fp32 copy 4 H, rsqrt 4, the rounded product 2 H and the result 2 H.
TEST(Torchtitan, NormsOfItsOwnKeptTheirFp32Input) {
  EXPECT_EQ(kept_by_a_layer({{"stack", "torchtitan-0.0.2"}}),
            kT * 2 * (4 * kH + 4 + 2 * kH + 2 * kH) + kAttention + kFlashState + kFeed);
}

// nn.RMSNorm written out: the fp32 copy and the fp32 product 4 H each, rsqrt 4, the result 2 H.
TEST(Torchtitan, NormsWrittenOutKeepTheirFp32Product) {
  EXPECT_EQ(kept_by_a_layer({{"stack", "torchtitan-0.1"}}),
            kT * 2 * (4 * kH + 4 + 4 * kH + 2 * kH) + kAttention + kFlashState + kFeed);
}

TEST(Torchtitan, FullCheckpointingKeepsEachLayersInput) {
  EXPECT_EQ(kept_by_a_layer({{"stack", "torchtitan"}, {"checkpointing", "full"}}), kT * 2 * kH);
}

// The input, attention's result, its statistics and state, and the 1st, 3rd, 5th and 7th product: wq, wv, w1, w2.
constexpr Bytes kProducts = kT * 2 * (kH + kKv + kF + kH);

TEST(Torchtitan, SelectiveCheckpointingKeepsEveryOtherProduct) {
  const Bytes attention = kT * (2 * kH + 4 * kHeads);
  for (const auto& [stack, state] : std::map<const char*, Bytes>{
           {"torchtitan", kCudnnState}, {"torchtitan-0.1", kFlashState}, {"torchtitan-0.0.2", kFlashState}}) {
    EXPECT_EQ(kept_by_a_layer({{"stack", stack}, {"checkpointing", "selective"}}),
              kT * 2 * kH + attention + state + kProducts)
        << stack;
  }
}

TEST(Torchtitan, ItsListHadNoCudnnAttentionAtFirst) {
  const Settings settings = {{"stack", "torchtitan-0.2.0"}, {"checkpointing", "selective"}};
  EXPECT_EQ(kept_by_a_layer(settings), kT * 2 * kH + kProducts);
  Settings flash = settings;
  flash.push_back({"attention", "flash"});
  EXPECT_GT(kept_by_a_layer(flash), kept_by_a_layer(settings));
}

// Compiled, a layer saves the operands of its products and of attention and what its norms read, but not silu's result
// apart from the product; with a list, its results that backward reads: never that of the last product, w2.
TEST(Torchtitan, CompiledLayersKeepWhatBackwardReads) {
  const Bytes input = kT * 2 * kH, attention = kT * (2 * kH + 4 * kHeads) + kFlashState;
  const auto kept = [](const char* checkpointing) {
    return kept_by_a_layer({{"stack", "torchtitan-0.0.2"}, {"compile", "true"}, {"checkpointing", checkpointing}});
  };
  EXPECT_EQ(kept("none"), kT * 2 * (2 * kH + 4 + 2 * kH) + kAttention + kFlashState + kT * 2 * 3 * kF)
      << "w1, w3, their product";
  EXPECT_EQ(kept("selective"), input + attention + kT * 2 * (kH + kKv + kF)) << "wq, wv, w1";
  EXPECT_EQ(kept("full"), input);
}

// Compiled, the loss reads 2-byte logits and writes their gradient; it makes no copy of them in fp32.
TEST(Torchtitan, ACompiledLossMakesNoFp32Logits) {
  const auto most_logits = [](const char* stack) {
    const Trace trace = traced(1, {{"stack", stack}, {"compile", "true"}});
    std::vector<Bytes> sizes;
    for (const StorageInfo& storage : trace.storages) {
      if (storage.category == Category::logits && storage.shape.numel() == kT * kV) sizes.push_back(storage.bytes);
    }
    return sizes;
  };
  EXPECT_EQ(most_logits("torchtitan"), (std::vector<Bytes>{kT * kV * 2, kT * kV * 2})) << "logits and their gradient";
  EXPECT_GT(most_logits("torchtitan-0.0.2").size(), 2u) << "compiled since 0.1";
}

std::map<OpKind, int> count_ops(const Trace& trace) {
  std::map<OpKind, int> counts;
  for (const StorageInfo& storage : trace.storages)
    ++counts[storage.op];
  return counts;
}

TEST(Torchtitan, AsksForCudnnsAttentionFirstWhereItCan) {
  const auto ops = [](const char* stack, const char* precision) {
    return count_ops(traced(1, {{"stack", stack}, {"precision", precision}}));
  };
  EXPECT_GT(ops("torchtitan", "bf16")[OpKind::cudnn_attention], 0);
  EXPECT_GT(ops("torchtitan-0.2.0", "amp-bf16")[OpKind::cudnn_attention], 0);
  EXPECT_EQ(ops("torchtitan-0.0.2", "bf16")[OpKind::cudnn_attention], 0);
  EXPECT_GT(ops("torchtitan-0.0.2", "bf16")[OpKind::flash_attention], 0);
  EXPECT_GT(ops("torchtitan", "fp32")[OpKind::efficient_attention], 0) << "cuDNN takes 16 bits alone";
}

Settings cut_in_two(const char* checkpointing) {
  return {{"stack", "torchtitan"}, {"tp", "2"}, {"sequence_parallel", "true"}, {"checkpointing", checkpointing}};
}

// Half the heads, width and vocabulary; between the products half the tokens: norms save those, and what the products
// read is gathered and saved whole, once for wq, wk and wv, once for w1 and w3.
TEST(Torchtitan, TensorParallelismCutsTokensBetweenProducts) {
  const Bytes norms = kT / 2 * 2 * (2 * kH + 4), gathered = kT * 2 * 2 * kH;
  const Bytes attention = kT / 2 * (8 * kH + 4 * kHeads) + kCudnnState, feed = kT / 2 * 8 * kF;
  EXPECT_EQ(kept_by_a_layer(cut_in_two("none"), 2), norms + gathered + attention + feed);
  EXPECT_EQ(kept_by_a_layer(cut_in_two("full"), 2), kT / 2 * 2 * kH);
}

// The list has reduce-scatters: the results of both row-wise layers stay, and w2's partial sums as the 7th product.
TEST(Torchtitan, SelectiveCheckpointingKeepsScatteredSums) {
  const Bytes input = kT / 2 * 2 * kH, attention = kT / 2 * (2 * kH + 4 * kHeads) + kCudnnState;
  const Bytes products = kT * 2 * (kH / 2 + kKv / 2 + kF / 2 + kH), sums = 2 * (kT / 2 * 2 * kH);
  EXPECT_EQ(kept_by_a_layer(cut_in_two("selective"), 2), input + attention + products + sums);
}

// loss_parallel's backward: log-probabilities, the one-hot rows, e^x, their sum, and its product with the gradient.
TEST(Torchtitan, TheParallelLossHoldsFourTensorsOfLogits) {
  const Trace trace = traced(1, cut_in_two("none"));
  const Bytes each = kT * (kV - 1) / 2 * 4;
  Bytes now = 0, most = 0;
  for (const Event& event : trace.events) {
    if (event.type != EventType::alloc && event.type != EventType::free) continue;
    const StorageInfo& storage = trace.storages[event.id];
    if (storage.category != Category::logits || storage.bytes != each) continue;
    now = event.type == EventType::alloc ? now + each : now - each;
    most = std::max(most, now);
  }
  EXPECT_EQ(most, 4 * each);
}

// cross_entropy over 4-byte logits: their fp32 copy is gone when backward begins, and with `del pred` the 16-bit ones.
TEST(Torchtitan, LogProbabilitiesAloneWaitForBackward) {
  const Trace trace = traced(1, {{"stack", "torchtitan"}});
  std::map<StorageId, Bytes> alive;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
    const bool logits = event.type != EventType::run && event.type != EventType::mark &&
                        trace.storages[event.id].category == Category::logits;
    if (logits && event.type == EventType::alloc) alive[event.id] = trace.storages[event.id].bytes;
    if (event.type == EventType::free) alive.erase(event.id);
  }
  Bytes sum = 0;
  for (const auto& [id, bytes] : alive)
    sum += bytes;
  EXPECT_EQ(sum, kT * kV * 4 + 4 + 4) << "log-probabilities, the loss and its divisor";
}

Settings in_float8(const char* stack, const char* checkpointing) {
  return {{"stack", stack}, {"float8", "true"}, {"checkpointing", checkpointing}};
}

// Uncompiled, torchao of the time kept each weight's float8 form, 1 byte a parameter, and its scale; later it casts
// again. Inputs are saved in 16 bits either way, once for products that share one.
TEST(Torchtitan, EagerFloat8KeptTheWeightsFloat8Form) {
  for (const auto& [stack, kept] : std::map<const char*, Bytes>{
           {"torchtitan", 0}, {"torchtitan-0.1", kMatrices + 7 * 4}, {"torchtitan-0.0.2", kMatrices + 7 * 4}}) {
    EXPECT_EQ(kept_by_a_layer(in_float8(stack, "none")), kept_by_a_layer({{"stack", stack}}) + kept) << stack;
    EXPECT_EQ(kept_by_a_layer(in_float8(stack, "full")), kT * 2 * kH) << stack;
  }
}

// Its list has the largest element of each operand (2 bytes), and had the absolute values it is found among: of the
// weights, and of what wq, wk, wv, w1 and w3 read (H each), wo (H) and w2 (F).
TEST(Torchtitan, SelectiveCheckpointingKeptAbsoluteValues) {
  const Bytes largest = 7 * 2 * 2, absolute = 2 * kMatrices + kT * 2 * (6 * kH + kF);
  for (const auto& [stack, kept] : std::map<const char*, Bytes>{
           {"torchtitan", largest}, {"torchtitan-0.1", largest}, {"torchtitan-0.0.2", largest + absolute}}) {
    const Bytes without = kept_by_a_layer({{"stack", stack}, {"checkpointing", "selective"}});
    EXPECT_EQ(kept_by_a_layer(in_float8(stack, "selective")), without + kept) << stack;
  }
}

// Of T x F: w2's input, cast in forward and in backward and turned for the weight's product; the gradients of w1's and
// w3's results, cast for each of two products and turned for one.
TEST(Torchtitan, EagerFloat8CastsForEveryProduct) {
  const Trace trace = traced(1, in_float8("torchtitan-0.0.2", "none"));
  const auto casts = std::count_if(trace.storages.begin(), trace.storages.end(), [](const StorageInfo& storage) {
    return storage.dtype == DType::u8 && storage.shape.numel() == kT * kF;
  });
  EXPECT_EQ(casts, 3 + 2 * 3);
}

// How many bytes of tensors of `elements` numbers are alive at once, of the loss.
Bytes most_of_loss(const Trace& trace, std::uint64_t elements) {
  Bytes now = 0, most = 0;
  for (const Event& event : trace.events) {
    if (event.type != EventType::alloc && event.type != EventType::free) continue;
    const StorageInfo& storage = trace.storages[event.id];
    if (storage.category != Category::logits || storage.shape.numel() != elements) continue;
    now = event.type == EventType::alloc ? now + storage.bytes : now - storage.bytes;
    most = std::max(most, now);
  }
  return most;
}

Settings by_chunks(const char* stack, const char* compile = "false") {
  return {{"stack", stack}, {"loss", "chunked"}, {"compile", compile}};
}

// An eighth of the tokens: the name `logits` holds 2 bytes a logit through backward, which has the log-probabilities
// and two gradients of 4 bytes beside it; compiled, the gradient of 2.
TEST(Torchtitan, TheChunkedLossHoldsLogitsOfAnEighth) {
  EXPECT_EQ(most_of_loss(traced(1, by_chunks("torchtitan")), kT / 8 * kV), kT / 8 * kV * (2 + 3 * 4));
  EXPECT_EQ(most_of_loss(traced(1, by_chunks("torchtitan", "true")), kT / 8 * kV), kT / 8 * kV * (2 + 2));
  EXPECT_EQ(most_of_loss(traced(1, by_chunks("torchtitan")), kT * kV), 0u);
}

// Between the passes the head is over: its gradient waits, as does that of the hidden states in 16 bits. No chunk, no
// fp32 buffer, and not the hidden states themselves, whose product has been differentiated.
TEST(Torchtitan, TheChunkedLossLeavesTheGradientOfHiddenStates) {
  const Trace trace = traced(1, by_chunks("torchtitan"));
  std::map<StorageId, Category> alive;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") break;
    if (event.type == EventType::alloc || event.type == EventType::label) alive[event.id] = event.category;
    if (event.type == EventType::free) alive.erase(event.id);
  }
  std::map<Category, Bytes> sums;
  for (const auto& [id, category] : alive)
    sums[category] += trace.storages[id].bytes;
  EXPECT_EQ(sums[Category::logits], kT * kH * 2 + 4) << "the gradient of the hidden states, and the loss";
  EXPECT_EQ(sums[Category::gradients], kV * kH * 2);
  EXPECT_EQ(sums[Category::activation_gradients], 0u);
}

// Old: log-probabilities of all chunks wait (4 bytes a logit), beside them one chunk's 16-bit copy where two sequences'
// eighths do not lie together. Their gradients, 2 bytes a logit, wait for each other and are joined.
TEST(Torchtitan, LogitsTakenInEighthsStayWhole) {
  const Trace trace = traced(1, by_chunks("torchtitan-0.0.2"));
  Bytes now = 0, after_forward = 0, most = 0;
  bool forward = true;
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark && trace.phases[event.id] == "step1.backward") {
      after_forward = now;
      forward = false;
    }
    if (event.type != EventType::alloc && event.type != EventType::free) continue;
    const StorageInfo& storage = trace.storages[event.id];
    const std::uint64_t elements = storage.shape.numel();
    const bool of_logits = elements == kT * kV || elements == kT / 8 * kV;
    if (storage.category != Category::logits || !of_logits) continue;
    now = event.type == EventType::alloc ? now + storage.bytes : now - storage.bytes;
    if (!forward) most = std::max(most, now);
  }
  EXPECT_EQ(after_forward, kT * kV * 4);
  EXPECT_EQ(most, kT * kV * 4 + kT / 8 * kV * 2 * 4) << "at the first chunk: two gradients of 4 bytes";
}

// Under FSDP the head is gathered with its norm, stays for the eighths, is reduced by itself and gathered again for the
// norm's backward.
TEST(Torchtitan, TheChunkedLossReducesTheHeadFirst) {
  Settings settings = by_chunks("torchtitan");
  for (const auto& more : Settings{{"precision", "fp32"}, {"fsdp", "2"}, {"dp", "2"}, {"units", "titan"}})
    settings.push_back(more);
  const Trace trace = traced(3, settings);
  const auto ops = count_ops(trace);
  EXPECT_EQ(ops.at(OpKind::all_gather), 5 + 5);
  EXPECT_EQ(ops.at(OpKind::reduce_scatter), 6) << "head, norm, three layers, embedding";
  std::size_t summed = 0;
  for (const StorageInfo& storage : trace.storages) {
    if (trace.names[storage.scope] != "fsdp.unsharded_gradients") continue;
    ++summed;
    EXPECT_EQ(storage.bytes, kV * kH * 4) << "the whole output layer's, in reduce_dtype";
  }
  EXPECT_EQ(summed, 1u);
}

// Shards: hooks are outside the checkpointed layer, so a recomputation gathers nothing.
TEST(Torchtitan, UnitsFollowTheVersion) {
  const auto gathers = [](const Settings& settings) { return count_ops(traced(3, settings))[OpKind::all_gather]; };
  const Settings now = {{"stack", "torchtitan"}, {"precision", "fp32"}, {"fsdp", "2"}, {"dp", "2"}, {"units", "titan"}};
  // Embedding, three layers, head; again in backward but for the head, which stays.
  EXPECT_EQ(gathers(now), 5 + 4);
  const Settings before = {{"stack", "torchtitan-0.0.2"}, {"precision", "fp32"}, {"fsdp", "2"}, {"dp", "2"}};
  EXPECT_EQ(gathers(before), 4 + 2) << "the root and the last layer stay";
  for (const Settings& units : {now, before}) {
    Settings never = units;
    never.push_back({"reshard_after_forward", "false"});
    EXPECT_LT(gathers(never), gathers(units));
  }
}

}  // namespace
}  // namespace ledger
