#include "core/oom/against_report.h"

#include <algorithm>
#include <iterator>

namespace ledger::oom {
namespace {

constexpr Bytes kSmall = kMiB;             // c10/cuda/CUDACachingAllocator: kSmallSize
constexpr Bytes kSmallBuffer = 2 * kMiB;   // kSmallBuffer, kRoundLarge
constexpr Bytes kLargeBuffer = 20 * kMiB;  // kLargeBuffer
constexpr Bytes kLeastLarge = 10 * kMiB;   // kMinLargeAlloc
constexpr std::size_t kMostMatches = 6;

Bytes unsigned_at(const Json& object, const char* key) {
  return object.unsigned_at(key).value_or(0);
}

std::string text_at(const Json& object, const char* key) {
  const Json* found = object.find(key);
  const auto text = found == nullptr ? std::nullopt : found->as_string();
  return text ? std::string(*text) : std::string();
}

// Two decimals of MiB or GiB are what a message keeps of a number.
bool prints_as(Bytes bytes, Bytes printed) {
  const Bytes slack = printed >= kGiB ? kGiB / 200 + 1 : kMiB / 200 + 1;
  return bytes <= plus(printed, slack) && plus(bytes, slack) >= printed;
}

TensorMatch match_of(const Json& tensor, Bytes bytes, std::uint64_t element_bytes, bool other) {
  TensorMatch match;
  match.name = text_at(tensor, "name");
  match.category = text_at(tensor, "category");
  match.op = text_at(tensor, "op");
  match.dtype = text_at(tensor, "dtype");
  match.count = unsigned_at(tensor, "count");
  match.bytes = bytes;
  match.element_bytes = element_bytes;
  match.other_dtype = other;
  return match;
}

void match_tensor(AgainstReport& result, const Json& tensor, Bytes request) {
  const std::uint64_t count = unsigned_at(tensor, "count"), width = unsigned_at(tensor, "element_bytes");
  if (count == 0 || width == 0) return;
  const Bytes one = unsigned_at(tensor, "bytes") / count;
  for (const std::uint64_t element : {width, std::uint64_t{4}, std::uint64_t{2}, std::uint64_t{1}}) {
    const Bytes bytes = times(one / width, element);
    if (!prints_as(printed_request(bytes), request)) continue;
    const auto same = [&](const TensorMatch& m) {
      return m.name == text_at(tensor, "name") && m.element_bytes == element;
    };
    if (std::none_of(result.matches.begin(), result.matches.end(), same))
      result.matches.push_back(match_of(tensor, bytes, element, element != width));
  }
}

// A flat copy of every parameter, whole or shared among ranks.
void match_all_parameters(AgainstReport& result, const Json& report, Bytes request) {
  const Json* model = report.find("model");
  if (model == nullptr) return;
  for (const char* key : {"params", "trainable"}) {
    for (const std::uint64_t element : {std::uint64_t{2}, std::uint64_t{4}}) {
      for (std::uint64_t share = 1; share <= 64; share *= 2) {
        const Bytes bytes = times(unsigned_at(*model, key), element) / share;
        if (bytes < 64 * kMiB || !prints_as(printed_request(bytes), request)) continue;
        TensorMatch match;
        match.name = key;
        match.bytes = bytes;
        match.element_bytes = element;
        match.divided_by = share;
        result.matches.push_back(std::move(match));
        return;
      }
    }
  }
}

struct Born {
  Stage stage;
  std::string_view category;
};
constexpr Born kBorn[] = {
    {Stage::load, "weights"},
    {Stage::load, "master_weights"},
    {Stage::forward, "activations"},
    {Stage::forward, "logits"},
    {Stage::loss, "logits"},
    {Stage::backward, "gradients"},
    {Stage::backward, "logits"},
    {Stage::backward, "activation_gradients"},
    {Stage::optimizer, "optimizer_states"},
    {Stage::optimizer, "temporaries"},
    {Stage::optimizer, "master_weights"},
};

bool born_in(Stage stage, std::string_view category) {
  return std::any_of(std::begin(kBorn), std::end(kBorn),
                     [&](const Born& born) { return born.stage == stage && born.category == category; });
}

// Tensors that are born at the stage where the request failed come first; those of another dtype last.
void match_request(AgainstReport& result, const Json& report, Bytes request, Stage stage) {
  result.request_says_nothing = request == kSmallBuffer || request == kLargeBuffer;
  if (result.request_says_nothing) return;
  const Json* at_peak = report.find("at_peak");
  const Json* tensors = at_peak == nullptr ? nullptr : at_peak->find("tensors");
  for (const Json* list : {tensors, report.find("tensors")}) {  // the second: all of a trace, where the caller has it
    if (list == nullptr) continue;
    for (const Json& tensor : list->items())
      match_tensor(result, tensor, request);
  }
  match_all_parameters(result, report, request);
  const auto rank = [stage](const TensorMatch& m) {
    return (m.other_dtype ? 2 : 0) + (born_in(stage, m.category) ? 0 : 1);
  };
  std::stable_sort(result.matches.begin(), result.matches.end(),
                   [&](const TensorMatch& a, const TensorMatch& b) { return rank(a) < rank(b); });
  if (result.matches.size() > kMostMatches) result.matches.resize(kMostMatches);
}

std::string phase_reaching(const Json& report, Bytes bytes) {
  const Json* phases = report.find("phases");
  if (phases == nullptr) return {};
  for (const Json& phase : phases->items()) {
    if (unsigned_at(phase, "allocated_peak_bytes") >= bytes) return text_at(phase, "name");
  }
  return {};
}

// A twentieth: what runs of one recipe differ by in libraries and lengths.
bool clearly_above(Bytes a, Bytes b) {
  return a > plus(b, b / 20);
}

void conclude(AgainstReport& result, const Message& message, const Diagnosis& diagnosis) {
  const auto& capacity = message[Field::capacity];
  const auto& allocated = message[Field::allocated];
  if (!capacity) return;
  if (result.least_device_bytes > *capacity) {
    result.conclusions.push_back("prediction_does_not_fit");
    return;
  }
  // Between the two it depends on what the allocator gives back in time.
  const Bytes needed = result.predicted_device_bytes;
  result.conclusions.push_back(needed > *capacity ? "prediction_tight" : "prediction_fits");
  if (diagnosis.other_process_bytes != 0) {
    result.conclusions.push_back(plus(needed, diagnosis.other_process_bytes) > *capacity
                                     ? "other_process_takes_the_room"
                                     : "other_process_beside_it");
  }
  if (!allocated) return;
  if (result.predicted_allocated_bytes == 0) return;
  if (*allocated >= times(result.predicted_allocated_bytes, 2) - result.predicted_allocated_bytes / 5) {
    result.conclusions.push_back("sharding_not_in_force");
  } else if (clearly_above(*allocated, result.predicted_allocated_bytes)) {
    result.conclusions.push_back("longer_batch_than_recipe");
  }
}

bool explains_more(const AgainstReport& result) {
  return std::any_of(result.conclusions.begin(), result.conclusions.end(), [](std::string_view id) {
    return id == "sharding_not_in_force" || id == "longer_batch_than_recipe";
  });
}

}  // namespace

Bytes printed_request(Bytes bytes) {
  if (bytes <= kSmall) return kSmallBuffer;
  if (bytes < kLeastLarge) return kLargeBuffer;
  return round_up(bytes, kSmallBuffer);
}

AgainstReport against_report(const Message& message, const Diagnosis& diagnosis, const Json& report) {
  AgainstReport result;
  const Json* peaks = report.find("peaks");
  if (peaks != nullptr) {
    result.predicted_allocated_bytes = unsigned_at(*peaks, "allocated_bytes");
    const Json* band = peaks->find("device_band_bytes");
    result.predicted_device_bytes = unsigned_at(*peaks, "device_bytes");
    // What must be there at the least: live blocks, and what the device holds beside PyTorch's segments.
    const Bytes reserved = unsigned_at(*peaks, "reserved_bytes");
    const Bytes beside = result.predicted_device_bytes > reserved ? result.predicted_device_bytes - reserved : 0;
    result.least_device_bytes = plus(result.predicted_allocated_bytes, beside);
    if (band != nullptr && !band->items().empty()) {
      result.predicted_device_bytes = band->items().back().as_unsigned().value_or(result.predicted_device_bytes);
    }
  }
  if (const auto& request = message[Field::requested]) match_request(result, report, *request, diagnosis.stage);
  if (const auto& allocated = message[Field::allocated]) {
    result.phase = phase_reaching(report, plus(*allocated, message[Field::requested].value_or(0)));
  }
  conclude(result, message, diagnosis);
  if (message[Field::allocated] && result.phase.empty() && !explains_more(result)) {
    result.conclusions.push_back("above_every_phase");
  }
  return result;
}

}  // namespace ledger::oom
