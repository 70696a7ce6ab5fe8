#include "probe/ranks/gathered.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/answer/report.h"
#include "core/api.h"
#include "probe/initial_values.h"
#include "probe/measured.h"

namespace ledger {
namespace {

constexpr std::size_t kNumbers = 7;
constexpr std::uint64_t kNone = ~std::uint64_t{0};
using Numbers = std::array<std::uint64_t, kNumbers>;  // of RankPeaks, in its order

Numbers numbers_of(const RankPeaks& p) {
  return {p.tensor_bytes,
          p.workspace_bytes,
          p.allocated_bytes,
          p.reserved_bytes,
          p.predicted_allocated_bytes,
          p.events_identical ? 1u : 0u,
          p.nccl_bytes.value_or(kNone)};
}

RankPeaks peaks_from(const Numbers& n) {
  return {n[0], n[1], n[2], n[3], n[4], n[5] != 0, n[6] == kNone ? std::nullopt : std::optional(n[6])};
}

RankBuffer bytes_at(void* data, std::size_t bytes) {
  return {static_cast<std::byte*>(data), bytes, DType::u8};
}

RankBuffer numbers_at(std::vector<double>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), values.size(), DType::f64};
}

// Over the ranks that have any: of a pipeline only the last stage knows them.
bool mean_of_losses(Communicator& ranks, std::vector<double>& losses) {
  std::vector<double> count{static_cast<double>(losses.size())};
  if (!ranks.all_reduce(numbers_at(count), ReduceOp::largest)) return false;
  const auto steps = static_cast<std::size_t>(count.front());
  std::vector<double> sums = losses;
  sums.resize(steps);
  sums.push_back(losses.empty() ? 0 : 1);
  if (!ranks.all_reduce(numbers_at(sums), ReduceOp::sum)) return false;
  const double with_losses = sums.back();
  losses.assign(sums.begin(), sums.end() - 1);
  for (double& loss : losses)
    loss /= with_losses;
  return true;
}

}  // namespace

Plan plan_of(const Prediction& prediction, std::uint32_t steps) {
  JsonWriter model;
  model.begin_object();
  write_model(model, prediction);
  model.end_object();
  Plan plan = {
      {"the version of probe", version()},
      {"the model", prediction.config.model_type + " with " + std::to_string(prediction.params) + " parameters"},
      {"the hash of the model's configuration", std::to_string(fnv1a64(model.take()))},
      {"steps", std::to_string(steps)}};
  for (const RecipeKey& key : recipe_keys())
    plan.emplace_back(key.name, recipe_value(prediction.recipe, key.name));
  return plan;
}

std::uint64_t RanksOfRun::worst() const {
  const auto less = [](const RankPeaks& a, const RankPeaks& b) { return a.allocated_bytes < b.allocated_bytes; };
  return static_cast<std::uint64_t>(std::max_element(peaks.begin(), peaks.end(), less) - peaks.begin());
}

RankPeaks peaks_of(const Prediction& prediction, const Replay& measured, std::optional<Bytes> nccl_bytes) {
  return {measured.peak_tensor_bytes,
          measured.peak_workspace_bytes,
          measured.peak_allocated_bytes,
          measured.peak_reserved_bytes,
          prediction.replay.peak_allocated_bytes,
          identical(prediction.replay, measured),
          nccl_bytes};
}

bool gather_results(Communicator& ranks, const RankPeaks& own, std::vector<RankPeaks>& all,
                    std::vector<double>& losses) {
  std::vector<Numbers> rows(static_cast<std::size_t>(ranks.world()));
  rows[static_cast<std::size_t>(ranks.rank())] = numbers_of(own);
  if (!ranks.all_gather(bytes_at(rows.data(), rows.size() * sizeof(Numbers)))) return false;
  if (!mean_of_losses(ranks, losses)) return false;
  for (const Numbers& row : rows)
    all.push_back(peaks_from(row));
  return true;
}

bool fetch_text(Communicator& ranks, std::uint64_t from, std::string& text) {
  if (from == 0 || (ranks.rank() != 0 && ranks.rank() != from)) return true;
  std::uint64_t bytes = text.size();
  if (ranks.rank() == from)
    return ranks.send(bytes_at(&bytes, sizeof bytes), 0) && ranks.send(bytes_at(text.data(), text.size()), 0);
  if (!ranks.receive(bytes_at(&bytes, sizeof bytes), from)) return false;
  text.resize(static_cast<std::size_t>(bytes));
  return ranks.receive(bytes_at(text.data(), text.size()), from);
}

}  // namespace ledger
