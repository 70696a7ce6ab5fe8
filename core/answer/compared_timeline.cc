#include "core/answer/compared_timeline.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/answer/report.h"

namespace ledger {
namespace {

struct Point {
  std::uint64_t event = 0;
  Bytes allocated = 0, reserved = 0;
};

// The same moment in both runs.
struct Moment {
  std::uint64_t measured = 0, predicted = 0;
};

Problem not_a_number(const char* where, const Json* found) {
  return {ProblemCode::wrong_type, where, found == nullptr ? "" : found->brief(), "integer", ""};
}

// Numbers of events stay below 2^32, as a trace's do, so that products of two fit.
std::optional<std::uint64_t> event_of(const Json& object, const char* key) {
  const auto event = object.unsigned_at(key);
  return event && *event <= std::numeric_limits<std::uint32_t>::max() ? event : std::nullopt;
}

Result<std::vector<Point>> points_of(const Json& timeline) {
  std::vector<Point> points;
  const Json* rows = timeline.find("points");
  if (rows == nullptr || !rows->is_array()) {
    return Problem{ProblemCode::wrong_type, "timeline.points", rows == nullptr ? "" : rows->brief(), "array", ""};
  }
  for (const Json& row : rows->items()) {
    const auto event = event_of(row, "event");
    const auto allocated = row.unsigned_at("allocated_bytes"), reserved = row.unsigned_at("reserved_bytes");
    if (!event || !allocated || !reserved) return not_a_number("timeline.points", &row);
    points.push_back({*event, *allocated, *reserved});
  }
  return points;
}

// Where phases of one name begin, in both runs, as long as their order is the same; the end, too, where all phases are
// there. A run that ended early has fewer phases of as many events.
std::vector<Moment> common_moments(const std::vector<Json>& phases, std::uint64_t measured_events, const Trace& trace) {
  std::vector<Moment> moments;
  std::uint64_t at = 0;
  for (std::uint64_t event = 0; event < trace.events.size(); ++event) {
    const Event& mark = trace.events[static_cast<std::size_t>(event)];
    if (mark.type != EventType::mark) continue;
    if (at == phases.size()) {
      if (measured_events != trace.events.size()) return moments;
      break;
    }
    const Json& phase = phases[static_cast<std::size_t>(at++)];
    const Json* name = phase.find("name");
    const auto measured = event_of(phase, "event");
    const bool forward = moments.empty() || (measured && *measured >= moments.back().measured);
    if (name == nullptr || name->as_string() != trace.phases[mark.id] || !measured || !forward) return moments;
    moments.push_back({*measured, event});
  }
  if (!moments.empty() && measured_events >= moments.back().measured) {
    moments.push_back({measured_events, trace.events.size()});
  }
  return moments;
}

// As far into the stretch between two common moments as it was in its own run.
std::optional<std::uint64_t> predicted_event(const std::vector<Moment>& moments, std::uint64_t measured) {
  const auto after =
      std::find_if(moments.begin(), moments.end(), [&](const Moment& m) { return m.measured > measured; });
  if (after == moments.begin()) return std::nullopt;
  const Moment& from = *(after - 1);
  if (after == moments.end()) return from.measured == measured ? std::optional(from.predicted) : std::nullopt;
  return from.predicted +
         (measured - from.measured) * (after->predicted - from.predicted) / (after->measured - from.measured);
}

}  // namespace

std::optional<Problem> write_compared_timeline(JsonWriter& out, const Json* measured, const Prediction& prediction) {
  const Json* phases = measured == nullptr ? nullptr : measured->find("phases");
  if (phases == nullptr) return std::nullopt;
  const auto events = event_of(*measured, "events");
  if (!events) return not_a_number("timeline.events", measured->find("events"));
  const Result<std::vector<Point>> points = points_of(*measured);
  if (!points.ok()) return points.problem();
  const std::vector<Moment> moments = common_moments(phases->items(), *events, prediction.trace);
  write_timeline(out, prediction.trace, prediction.replay);
  out.key("measured_points").begin_array();
  for (const Point& point : points.value()) {
    if (const auto event = predicted_event(moments, point.event)) {
      out.begin_object().member("event", *event).member("allocated_bytes", point.allocated);
      out.member("reserved_bytes", point.reserved).end_object();
    }
  }
  out.end_array();
  return std::nullopt;
}

}  // namespace ledger
