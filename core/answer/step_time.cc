#include "core/answer/step_time.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/models/megatron.h"
#include "core/parallel/mesh_of.h"

namespace ledger {
namespace {

struct LinksRow {
  const char* gpu;
  Links links;
};

// Cards on the bus: 16 lanes of PCI Express 4.0 or 5.0 by their data sheets, and a network port of 100 Gbit/s among as
// many cards as a rack server holds, which is a usual machine and no data sheet's.
constexpr Links kPcie4 = {8, 31.5, 12.5}, kPcie5 = {8, 63, 12.5};
constexpr Links kA100 = {8, 300, 25}, kH100 = {8, 450, 50}, kB200 = {8, 900, 50};
constexpr std::array kLinkRows = {
    LinksRow{"a100-40gb", kA100},        LinksRow{"a100-80gb", kA100},
    LinksRow{"a800-80gb", {8, 200, 25}},  // NVLink cut to 400 GB/s
    LinksRow{"h100-80gb", kH100},        LinksRow{"h200-141gb", kH100},
    LinksRow{"h20-96gb", kH100},         LinksRow{"b200-180gb", kB200},
    LinksRow{"rtx3090-24gb", kPcie4},    LinksRow{"rtx4090-24gb", kPcie4},
    LinksRow{"a5000-24gb", kPcie4},      LinksRow{"a6000-48gb", kPcie4},
    LinksRow{"a6000-48gb-ecc", kPcie4},  LinksRow{"rtx6000-ada-48gb", kPcie4},
    LinksRow{"a10-24gb", kPcie4},        LinksRow{"a10g-24gb", kPcie4},
    LinksRow{"a30-24gb", kPcie4},        LinksRow{"l4-24gb", kPcie4},
    LinksRow{"l40-48gb", kPcie4},        LinksRow{"l40s-48gb", kPcie4},
    LinksRow{"rtx5090-32gb", kPcie5},    LinksRow{"rtx-pro-6000-96gb", kPcie5},
};

constexpr Bytes kHalf = 2;  // bytes of what is computed and sent in 16 bits
constexpr double kGiga = 1e9, kTera = 1e12;

double real(std::uint64_t value) {
  return static_cast<double>(value);
}

std::uint64_t sparse_layers(const ModelConfig& c) {
  return static_cast<std::uint64_t>(std::count(c.moe.layers.begin(), c.moe.layers.end(), true));
}

// Of one layer, on the average of all: weights in the products that every token goes through, those of its experts, and
// both products of causal attention for one token, half of the scores.
struct LayerWork {
  double linear_weights;
  double expert_weights;
  double attention_flops;
  double with_experts;  // of the layers, a part
};

LayerWork layer_of(const ModelConfig& c, const Recipe& r) {
  const double q = real(times(c.num_attention_heads, c.head_dim)), kv = real(times(c.num_key_value_heads, c.head_dim));
  const double feed = c.style.feed == Feed::gated ? 3 : 2, width = feed * real(c.hidden_size);
  const double sparse = real(sparse_layers(c)) / real(c.num_hidden_layers);
  const double always = (1 - sparse) * real(c.intermediate_size) + sparse * real(c.moe.shared_width);
  return {2 * real(c.hidden_size) * (q + kv) + width * always,
          sparse * width * real(times(c.moe.per_token, c.moe.width)), 2 * real(r.seq) * q, sparse};
}

// A step is a number of turns, each a micro-batch's forward and backward on the slowest stage.
class StepModel {
 public:
  StepModel(const ModelConfig& config, const Recipe& recipe, const Links& links)
      : c_(config), r_(recipe), links_(links), layer_(layer_of(config, recipe)) {}

  StepTime time(double flops_per_s) const {
    StepTime turn;
    turn.compute = compute_flops() / flops_per_s;
    turn.tensor_bytes = tensor_bytes();
    turn.tensor = seconds(turn.tensor_bytes, r_.tp);
    turn.tensor += seconds(expert_bytes(), times(expert_tensor_ranks(r_), r_.ep));
    turn.tensor_bytes = plus(turn.tensor_bytes, expert_bytes());
    turn.context_bytes = context_bytes();
    turn.context = seconds(turn.context_bytes, times(r_.tp, r_.cp));
    turn.pipeline_bytes = pipeline_bytes();
    turn.pipeline = seconds(turn.pipeline_bytes, times(times(r_.tp, r_.cp), r_.pp));
    return step_of(turn);
  }

 private:
  StepTime step_of(const StepTime& turn) const {
    const std::uint64_t turns = r_.micro_batches;
    const double filling = real(r_.pp - 1) / real(chunks());
    StepTime step;
    step.compute = real(turns) * turn.compute;
    step.tensor = real(turns) * turn.tensor;
    step.context = real(turns) * turn.context;
    step.pipeline = real(turns) * turn.pipeline;
    step.bubble = filling * (turn.compute + turn.tensor + turn.context + turn.pipeline);
    step.tensor_bytes = times(turns, turn.tensor_bytes);
    step.context_bytes = times(turns, turn.context_bytes);
    step.pipeline_bytes = times(turns, turn.pipeline_bytes);
    step.data_bytes = data_bytes();
    step.data = seconds(step.data_bytes, times(times(times(r_.tp, r_.cp), r_.pp), r_.dp));
    return step;
  }

  std::uint64_t chunks() const { return chunks_of_stage(c_, stage_cut(r_), 0); }
  std::uint64_t layers() const { return most_layers_of_a_stage(c_, stage_cut(r_)); }
  std::uint64_t tokens() const { return times(r_.batch, r_.seq) / r_.cp; }  // of one GPU

  // Forward, twice that backward, and what is computed again. The last stage has the output head, for a layer or beside
  // them.
  double compute_flops() const {
    const double forward = 2 * (layer_.linear_weights + layer_.expert_weights) + layer_.attention_flops;
    const double again = r_.checkpointing == Checkpointing::full        ? forward * recomputed()
                         : r_.checkpointing == Checkpointing::selective ? layer_.attention_flops
                                                                        : 0;
    const double head = 6 * real(c_.hidden_size) * real(c_.vocab_size), layer = 3 * forward + again;
    const double last = counts_embedding_and_loss(c_, stage_cut(r_)) ? std::max(layer, head) : layer + head;
    return real(tokens()) * (real(layers() - 1) * layer + last) / real(r_.tp);
  }

  // Of a stage's layers, a part.
  double recomputed() const {
    if (r_.recompute_method == RecomputeMethod::uniform) return 1;
    return std::min(1.0, real(times(r_.recompute_num_layers, chunks())) / real(layers()));
  }

  Bytes hidden_bytes() const { return times(times(tokens(), c_.hidden_size), kHalf); }

  // Two all-reduces a layer and pass, each twice the state but for one's own part; with sequence parallelism a gather
  // and a scatter send the same (Korthikanti et al., arXiv:2205.05198, section 4.2.2).
  // A layer with experts has those of attention alone, and of an expert that every token visits.
  Bytes tensor_bytes() const {
    const bool twice = c_.moe.experts == 0 || c_.moe.shared_width != 0;
    const double collectives = twice ? 4 : 4 - 2 * layer_.with_experts;
    const auto each = static_cast<std::uint64_t>(collectives * real(times(passes(), layers())));
    return times(each, times(hidden_bytes(), r_.tp - 1)) / r_.tp;
  }

  // A row for each visit to an expert goes out and comes back once a pass, all of it but one's own part; where experts
  // are cut it is gathered and scattered among those that cut them.
  Bytes expert_bytes() const {
    const std::uint64_t etp = expert_tensor_ranks(r_);
    const double rows = real(times(hidden_bytes(), c_.moe.per_token)) / real(r_.tp);
    const double sent = rows * real(r_.ep - 1) / real(r_.ep) + rows * real(etp - 1);
    return static_cast<Bytes>(2 * real(times(passes(), layers())) * layer_.with_experts * sent);
  }

  std::uint64_t passes() const { return r_.checkpointing == Checkpointing::full ? 3 : 2; }

  // Keys and values go round once forward; backward they and their gradients do. Exchanged heads (a2a) are taken to
  // send as much.
  Bytes context_bytes() const {
    const Bytes kv = times(times(times(2, tokens()), times(c_.num_key_value_heads, c_.head_dim)), kHalf) / r_.tp;
    return times(times(times(3, r_.cp - 1), layers()), kv);
  }

  // Its part of the state on to the next stage, and of its gradient back, for every chunk.
  Bytes pipeline_bytes() const {
    if (r_.pp == 1) return 0;
    const Bytes part = hidden_bytes() / (r_.sequence_parallel ? r_.tp : 1);
    return times(times(2, chunks()), part);
  }

  // Main gradients reduced to their shards, 16-bit parameters gathered again (zero 1), or gradients summed everywhere.
  Bytes data_bytes() const {
    const std::uint64_t ranks = times(r_.dp, r_.cp);
    const std::uint64_t table = times(c_.vocab_size, c_.hidden_size);
    const auto linear = static_cast<std::uint64_t>(layer_.linear_weights);
    const std::uint64_t parameters = plus(times(layers(), linear), r_.pp == 1 ? times(2, table) : table) / r_.tp;
    const Bytes gradient = r_.precision == Precision::megatron_bf16 ? 4 : 2;
    const Bytes each = r_.zero == 1 ? gradient + kHalf : 2 * gradient;
    return plus(times(times(parameters, each), ranks - 1) / ranks, expert_data_bytes(each));
  }

  Bytes expert_data_bytes(Bytes each) const {
    if (c_.moe.experts == 0) return 0;
    const std::uint64_t parts = times(expert_tensor_ranks(r_), r_.ep);
    const std::uint64_t ranks = times(times(r_.tp, r_.cp), r_.dp) / parts;
    return times(times(expert_parameters(c_) / times(parts, r_.pp), each), ranks - 1) / ranks;
  }

  double seconds(Bytes bytes, std::uint64_t ranks) const { return seconds_on(links_, bytes, ranks); }

  const ModelConfig& c_;
  const Recipe& r_;
  const Links& links_;
  LayerWork layer_;
};

}  // namespace

std::optional<Links> links_of(const Gpu& gpu) {
  for (const LinksRow& row : kLinkRows) {
    if (std::string_view(gpu.id) == row.gpu) return row.links;
  }
  return std::nullopt;
}

std::uint64_t expert_parameters(const ModelConfig& c) {
  const std::uint64_t matrices = c.style.feed == Feed::gated ? 3 : 2;
  return times(times(sparse_layers(c), c.moe.experts), times(matrices, times(c.hidden_size, c.moe.width)));
}

double seconds_on(const Links& links, Bytes bytes, std::uint64_t ranks) {
  const double rate = ranks <= links.gpus ? links.within_gb_per_s : links.between_gb_per_s;
  return real(bytes) / (rate * kGiga);
}

std::optional<StepTime> step_time(const ModelConfig& config, const Recipe& recipe) {
  const Gpu* gpu = find_gpu(recipe.gpu);
  const std::optional<Links> links = links_of(*gpu);
  if (!links || gpu->dense_bf16_tflops <= 0) return std::nullopt;
  return StepModel(config, recipe, *links).time(gpu->dense_bf16_tflops * kTera);
}

void write_step_time(JsonWriter& out, const StepTime& t) {
  out.begin_object().member("seconds", t.seconds());
  out.member("compute_s", t.compute).member("tensor_s", t.tensor).member("context_s", t.context);
  out.member("pipeline_s", t.pipeline).member("bubble_s", t.bubble).member("data_s", t.data);
  out.member("tensor_bytes", t.tensor_bytes).member("context_bytes", t.context_bytes);
  out.member("pipeline_bytes", t.pipeline_bytes).member("data_bytes", t.data_bytes).end_object();
}

}  // namespace ledger
