#include "probe/ranks/message_plan.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "probe/ranks/rank_groups.h"

namespace ledger {
namespace {

// Of a pass through a stage; a message takes one. Which passes are longer decides no order that another would not.
constexpr std::uint64_t kPass = 1u << 10;

constexpr const char* kNeverArrives = "stages of the pipeline wait for messages that nobody sends";

bool is_member(std::uint32_t group, std::size_t stage, std::size_t stages) {
  const bool ends = group == static_cast<std::uint32_t>(RankGroup::pipeline_ends);
  return !ends || stage == 0 || stage + 1 == stages;
}

// A message at its arrival, or a collective.
struct Moment {
  std::uint64_t time = 0;
  StageTurn::Kind kind = StageTurn::receive;
  std::size_t from = 0, to = 0;
  std::uint32_t tag = 0, group = 0;

  // No two messages arrive at a stage at once, and no two collectives are of a stage at once.
  auto key() const { return std::tuple(time, kind, to, group); }
};

class Pipeline {
 public:
  explicit Pipeline(const std::vector<StageTurns>& all) : all_(all), at_(all.size(), 0), clocks_(all.size(), 0) {}

  // False where stages wait for what never comes, or something is never received.
  bool play() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < all_.size(); ++stage) {
        while (advance(stage))
          moved = true;
      }
    }
    const auto is_over = [&](std::size_t stage) { return at_[stage] == all_[stage].size(); };
    for (std::size_t stage = 0; stage < all_.size(); ++stage) {
      if (!is_over(stage)) return false;
    }
    return std::all_of(on_the_way_.begin(), on_the_way_.end(), [](const auto& way) { return way.second.empty(); });
  }

  std::vector<Moment> in_order() {
    std::sort(moments_.begin(), moments_.end(), [](const Moment& a, const Moment& b) { return a.key() < b.key(); });
    return moments_;
  }

 private:
  using Way = std::tuple<std::size_t, std::size_t, std::uint32_t>;  // from, to, tag

  std::uint64_t time_of(std::size_t stage) const { return clocks_[stage] + 1 + kPass * all_[stage][at_[stage]].passes; }

  void take(std::size_t stage, std::uint64_t time) {
    clocks_[stage] = time;
    ++at_[stage];
  }

  bool advance(std::size_t stage) {
    if (at_[stage] == all_[stage].size()) return false;
    const StageTurn& turn = all_[stage][at_[stage]];
    if (turn.kind == StageTurn::together) return meet(turn.other);
    if (turn.other >= all_.size()) return false;
    const std::uint64_t time = time_of(stage);
    if (turn.kind == StageTurn::send) {
      on_the_way_[{stage, turn.other, turn.tag}].push_back(time);
      take(stage, time);
      return true;
    }
    std::deque<std::uint64_t>& way = on_the_way_[{turn.other, stage, turn.tag}];
    if (way.empty()) return false;
    const std::uint64_t arrival = std::max(time, way.front() + 1);
    way.pop_front();
    moments_.push_back({arrival, StageTurn::receive, turn.other, stage, turn.tag, 0});
    take(stage, arrival);
    return true;
  }

  // When all of its members are at it.
  bool meet(std::uint32_t group) {
    std::uint64_t time = 0;
    for (std::size_t stage = 0; stage < all_.size(); ++stage) {
      if (!is_member(group, stage, all_.size())) continue;
      if (at_[stage] == all_[stage].size()) return false;
      const StageTurn& turn = all_[stage][at_[stage]];
      if (turn.kind != StageTurn::together || turn.other != group) return false;
      time = std::max(time, time_of(stage));
    }
    for (std::size_t stage = 0; stage < all_.size(); ++stage) {
      if (is_member(group, stage, all_.size())) take(stage, time);
    }
    moments_.push_back({time, StageTurn::together, 0, 0, 0, group});
    return true;
  }

  const std::vector<StageTurns>& all_;
  std::vector<std::size_t> at_;
  std::vector<std::uint64_t> clocks_;
  std::map<Way, std::deque<std::uint64_t>> on_the_way_;
  std::vector<Moment> moments_;
};

bool is_collective(OpKind op) {
  return op == OpKind::all_gather || op == OpKind::reduce_scatter || op == OpKind::all_reduce ||
         op == OpKind::all_to_all;
}

RankBuffer numbers(std::vector<std::uint64_t>& all) {
  return {reinterpret_cast<std::byte*>(all.data()), all.size(), DType::i64};
}

// All stages', in the order of stages.
std::optional<std::vector<StageTurns>> told(const StageTurns& own, Communicator& pipeline) {
  std::vector<std::uint64_t> counts(static_cast<std::size_t>(pipeline.world()));
  const auto place = static_cast<std::size_t>(pipeline.rank());
  counts[place] = own.size();
  if (!pipeline.all_gather(numbers(counts))) return std::nullopt;
  const auto most = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()));
  StageTurns everybodys(most * counts.size());
  std::copy(own.begin(), own.end(), everybodys.begin() + static_cast<std::ptrdiff_t>(most * place));
  const RankBuffer bytes{reinterpret_cast<std::byte*>(everybodys.data()), everybodys.size() * sizeof(StageTurn),
                         DType::u8};
  if (!pipeline.all_gather(bytes)) return std::nullopt;
  std::vector<StageTurns> all;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    const auto first = everybodys.begin() + static_cast<std::ptrdiff_t>(most * stage);
    all.emplace_back(first, first + static_cast<std::ptrdiff_t>(counts[stage]));
  }
  return all;
}

}  // namespace

bool spans_stages(OpKind op, RankGroup group) {
  constexpr unsigned kAxes = 256;  // below it, groups say along which axes their members differ
  const auto bits = static_cast<unsigned>(group);
  return is_collective(op) && bits < kAxes && (bits & static_cast<unsigned>(RankGroup::pipeline)) != 0;
}

StageTurns stage_turns(const Trace& trace) {
  StageTurns turns;
  if (trace.mesh.size(Axis::pipeline) == 1) return turns;
  std::uint32_t passes = 0;
  const auto add = [&](StageTurn::Kind kind, std::uint64_t other, std::int64_t tag) {
    turns.push_back({kind, static_cast<std::uint32_t>(other), static_cast<std::uint32_t>(tag), passes});
    passes = 0;
  };
  for (const Event& event : trace.events) {
    if (event.type == EventType::mark) ++passes;
    if (event.type != EventType::run) continue;
    const Run& run = trace.runs[event.id];
    const auto other = static_cast<std::uint64_t>(run.attr.i[0]);
    const bool between_stages = run.group == RankGroup::pipeline;
    if (between_stages && run.op == OpKind::send) add(StageTurn::send, other, run.attr.i[1]);
    if (between_stages && run.op == OpKind::receive) add(StageTurn::receive, other, run.attr.i[1]);
    if (spans_stages(run.op, run.group)) add(StageTurn::together, static_cast<std::uint64_t>(run.group), 0);
  }
  return turns;
}

std::optional<StageTurns> message_plan(const std::vector<StageTurns>& all, std::size_t stage) {
  Pipeline pipeline(all);
  if (!pipeline.play()) return std::nullopt;
  StageTurns plan;
  for (const Moment& moment : pipeline.in_order()) {
    if (moment.kind == StageTurn::together) {
      if (is_member(moment.group, stage, all.size())) plan.push_back({StageTurn::together, moment.group, 0, 0});
    } else if (moment.from == stage) {
      plan.push_back({StageTurn::send, static_cast<std::uint32_t>(moment.to), moment.tag, 0});
    } else if (moment.to == stage) {
      plan.push_back({StageTurn::receive, static_cast<std::uint32_t>(moment.from), moment.tag, 0});
    }
  }
  return plan;
}

std::optional<StageTurns> agree_on_messages(const Trace& trace, Communicator& all) {
  if (trace.mesh.size(Axis::pipeline) == 1) return StageTurns();
  RankGroups groups(trace.mesh, all);
  Communicator& pipeline = groups.of(RankGroup::pipeline);
  const auto turns = told(stage_turns(trace), pipeline);
  if (!turns) return std::nullopt;
  std::optional<StageTurns> plan = message_plan(*turns, static_cast<std::size_t>(pipeline.rank()));
  if (!plan) all.abort(kNeverArrives);
  return plan;
}

}  // namespace ledger
