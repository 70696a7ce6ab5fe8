// table.h - results for people reading a terminal.
#pragma once

#include <string>

#include "core/answer/prediction.h"

namespace ledger {

struct RanksOfRun;

// "12.34 GiB", "512 B": binary units, always printed.
std::string human_bytes(Bytes bytes);

// The model alone, where its step cannot be predicted.
std::string count_line(const ModelConfig& config);

// Model, recipe, phases, ledger at the peak and verdict of a prediction.
std::string prediction_table(const Prediction& prediction);

// Predicted beside measured allocated peaks, phase by phase.
std::string measured_table(const Prediction& prediction, const Replay& measured, const std::vector<double>& phase_ms,
                           const std::vector<double>& losses);

// A line a rank, where several ran; what a stand-in is, where one ran for many; else nothing.
std::string ranks_table(const RanksOfRun& ranks);

std::string gpu_table();

}  // namespace ledger
