// report.h - a prediction as JSON (docs/file-formats.md), and the pieces that measured files share with it.
#pragma once

#include <optional>
#include <string>

#include "core/answer/prediction.h"
#include "core/base/json.h"

namespace ledger {

inline constexpr const char* kSchemaVersion = "1.0";

inline constexpr std::size_t kTimelinePoints = 400;
std::string write_report(const Prediction& prediction, std::size_t timeline_points = kTimelinePoints);

// Members of an open object: "model": {...} and so on.
void write_dims(JsonWriter& out, const ModelConfig& config);  // "dims": {...}
void write_model(JsonWriter& out, const Prediction& prediction);
void write_phases(JsonWriter& out, const Trace& trace, const Replay& replay, const double* milliseconds = nullptr);
// Up to where the replay ended.
void write_timeline(JsonWriter& out, const Trace& trace, const Replay& replay, std::size_t points = kTimelinePoints);
void write_at_peak(JsonWriter& out, const ModelConfig& config, const Recipe& recipe, const Trace& trace,
                   const Replay& replay, const Ledger& ledger);

// "peaks" as measured or predicted. device_bytes: from the GPU's context, with its band; or as measured; or null.
void write_peaks(JsonWriter& out, const Trace& trace, const Replay& replay, const Gpu* gpu,
                 std::optional<Bytes> measured_device_bytes = std::nullopt);

}  // namespace ledger
