#include "core/oom/diagnosis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/oom/marks.h"
#include "core/oom/numeric.h"

namespace ledger::oom {
namespace {

// Tenths of a natural logarithm, by cause: activations, optimizer, sharding, logits, host, weights, gathering, comm,
// fragmentation, eval, gradients, process, leak, kv-cache, unknown.
using CauseScores = std::array<std::int8_t, kCauses>;

// How often each was the confirmed answer among the reports about training.
constexpr CauseScores kPrior = {29, 27, 25, 24, 22, 18, 16, 16, 18, 14, 10, 11, 14, 14, 2};

// What a stage adds: where each cause shows itself.
constexpr CauseScores kByStage[kStages] = {
    /* unknown   */ {},
    /* load      */ {-25, 8, 14, -30, 6, 12, -20, 2, -5, -40, -20, 4, -2, -8, -5},
    /* forward   */ {12, -14, 0, -4, -14, -2, -30, -6, -2, -30, -20, 0, 0, -12, 0},
    /* loss      */ {-4, -20, -16, 26, -25, -18, -30, -15, -10, -20, -18, -8, -10, -25, -8},
    /* backward  */ {9, -8, -2, -1, -20, -8, -30, 6, -3, -30, 14, -3, -4, -25, -5},
    /* optimizer */ {-10, 18, -8, -20, 2, -12, -30, -6, -3, -30, -5, -6, -8, -25, -8},
    /* eval      */ {0, -22, -12, 8, -8, -14, -22, -15, -8, 27, -25, -8, -4, -10, -8},
    /* save      */ {-22, -14, -8, -22, 4, -10, 28, -10, -8, -14, -22, -8, -4, -25, -8},
    /* generate  */ {0, -24, 2, -6, -14, 2, -12, -10, 4, -10, -25, 4, -2, 16, -5},
};
constexpr const char* kStageNames[] = {"unknown",        "load", "forward",         "loss",    "backward",
                                       "optimizer step", "eval", "checkpoint save", "generate"};
constexpr const char* kStageIds[] = {"",           "stage_load",     "stage_forward",
                                     "stage_loss", "stage_backward", "stage_optimizer",
                                     "stage_eval", "stage_save",     "stage_generate"};
constexpr const char* kCauseNames[] = {"activations",
                                       "optimizer",
                                       "sharding not effective",
                                       "logits",
                                       "host RAM",
                                       "weights",
                                       "checkpoint gathering",
                                       "comm buffers",
                                       "fragmentation",
                                       "eval accumulating logits",
                                       "gradients",
                                       "other process",
                                       "leak",
                                       "kv-cache",
                                       "unknown"};
constexpr std::size_t kMostEvidence = 8;

// The deepest mark decides; of equals the last one, which is the innermost frame.
const Hit* stage_hit(const std::vector<Hit>& hits) {
  const Hit* best = nullptr;
  for (const Hit& hit : hits) {
    if (hit.mark->depth == Depth::none || hit.mark->stage == Stage::unknown) continue;
    const bool deeper = best == nullptr || hit.mark->depth > best->mark->depth;
    const bool later = best != nullptr && hit.mark->depth == best->mark->depth && hit.at > best->at;
    if (deeper || later) best = &hit;
  }
  return best;
}

void weigh_stage(Diagnosis& d, const std::vector<Hit>& hits, const Squashed& text) {
  const Hit* hit = stage_hit(hits);
  std::size_t at = hit == nullptr ? 0 : hit->at;
  if (hit != nullptr) d.stage = hit->mark->stage;
  std::size_t loading = 0;
  const bool decided = hit != nullptr && hit->mark->depth == Depth::enclosing;
  if (!decided && stopped_while_loading(text, &loading)) {
    d.stage = Stage::load;
    at = loading;
  }
  if (d.stage == Stage::unknown) return;
  const auto stage = static_cast<std::size_t>(d.stage);
  d.evidence.push_back({kStageIds[stage], text.quote(at), 0, kByStage[stage]});
}

void weigh_marks(Diagnosis& d, const std::vector<Hit>& hits, const Squashed& text) {
  for (const Hit& hit : hits) {
    Evidence evidence{hit.mark->id, text.quote(hit.at), 0, {}};
    for (const Weighing& weighing : hit.mark->weighings) {
      if (weighing.cause != Cause::count_) evidence.weight[static_cast<std::size_t>(weighing.cause)] = weighing.tenths;
    }
    const auto same = std::find_if(d.evidence.begin(), d.evidence.end(),
                                   [&](const Evidence& e) { return std::string_view(e.id) == evidence.id; });
    if (same == d.evidence.end()) {
      d.evidence.push_back(std::move(evidence));
      continue;
    }
    // Several needles of one id are one observation: the strongest of them counts.
    for (std::size_t c = 0; c < kCauses; ++c) {
      if (std::abs(evidence.weight[c]) > std::abs(same->weight[c])) same->weight[c] = evidence.weight[c];
    }
  }
}

// cuBLAS makes its handle at a thread's first product: in the first forward only the weights are there yet, in the
// first backward (another thread) the activations too.
void weigh_library_handle(Diagnosis& d, const std::vector<Hit>& hits, const Squashed& text) {
  for (const Hit& hit : hits) {
    if (std::string_view(hit.mark->id) != "log_library_handle") continue;
    const bool backward = d.stage == Stage::backward;
    add_evidence(d, backward ? "handle_in_backward" : "handle_in_forward", text.quote(hit.at), 0,
                 {{Cause::weights, backward ? 0 : 14}, {Cause::activations, backward ? 6 : -4}, {Cause::process, 4}});
  }
}

std::array<int, kCauses> scores(const Diagnosis& d) {
  std::array<int, kCauses> score{};
  for (std::size_t c = 0; c < kCauses; ++c) {
    score[c] = int{kPrior[c]};
    for (const Evidence& evidence : d.evidence)
      score[c] += evidence.weight[c];
  }
  return score;
}

// Pieces of evidence are not independent, so they are believed less than their sum: a flatter softmax than e.
double share_of_winner(const std::array<int, kCauses>& score, int best) {
  constexpr double kTemperature = 12;
  double sum = 0;
  for (const int s : score)
    sum += std::exp((s - best) / kTemperature);
  return 1 / sum;
}

void conclude(Diagnosis& d) {
  const auto score = scores(d);
  std::array<std::size_t, kCauses> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
  d.cause = static_cast<Cause>(order[0]);
  d.confidence = share_of_winner(score, score[order[0]]);
  constexpr int kFarBehind = 40;
  for (std::size_t i = 1; i <= 2; ++i) {
    if (score[order[0]] - score[order[i]] <= kFarBehind) d.also_possible.push_back(static_cast<Cause>(order[i]));
  }
}

// A line is quoted once. Frames, log lines and words say nothing but their line; numbers have something to say without.
void quote_once(std::vector<Evidence>& evidence) {
  std::vector<std::string> quoted;
  std::vector<Evidence> kept;
  for (Evidence& e : evidence) {
    const bool again = !e.quote.empty() && std::find(quoted.begin(), quoted.end(), e.quote) != quoted.end();
    const std::string_view id = e.id;
    if (again && (id.starts_with("frame_") || id.starts_with("log_") || id.starts_with("words_"))) continue;
    if (again) e.quote.clear();
    if (!e.quote.empty()) quoted.push_back(e.quote);
    kept.push_back(std::move(e));
  }
  evidence = std::move(kept);
}

// What spoke for the answer, strongest first; what spoke against others stays out.
void keep_telling_evidence(Diagnosis& d) {
  const auto cause = static_cast<std::size_t>(d.cause);
  const auto telling = [&](const Evidence& e) {
    return e.weight[cause] > 0 || std::string_view(e.id).starts_with("stage_") || e.bytes > 0;
  };
  std::erase_if(d.evidence, [&](const Evidence& e) { return !telling(e); });
  std::stable_sort(d.evidence.begin(), d.evidence.end(),
                   [&](const Evidence& a, const Evidence& b) { return a.weight[cause] > b.weight[cause]; });
  quote_once(d.evidence);
  if (d.evidence.size() > kMostEvidence) d.evidence.resize(kMostEvidence);
}

}  // namespace

const char* stage_name(Stage stage) {
  return kStageNames[static_cast<std::size_t>(stage)];
}

const char* cause_name(Cause cause) {
  return kCauseNames[static_cast<std::size_t>(cause)];
}

Diagnosis diagnose(const Squashed& text, const std::vector<Message>& messages) {
  Diagnosis d;
  const std::vector<Hit> hits = find_marks(text.text());
  weigh_stage(d, hits, text);
  weigh_marks(d, hits, text);
  weigh_library_handle(d, hits, text);
  if (const Message* message = main_message(messages)) weigh_message(d, text, *message);
  weigh_counters(d, text);
  conclude(d);
  keep_telling_evidence(d);
  return d;
}

}  // namespace ledger::oom
