#include "probe/table.h"

#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "core/answer/letters.h"
#include "probe/ranks/gathered.h"

namespace ledger {
namespace {

constexpr std::size_t kLedgerLines = 12;

[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...) {
  std::array<char, 512> buffer{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer.data(), buffer.size(), format, arguments);
  va_end(arguments);
  out += buffer.data();
}

double gib(Bytes bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kGiB);
}

// "32 x b 1 x s 4096 x ffn 14336 x 2 B"
std::string product(const LedgerLine& line, const Letters& letters) {
  std::string text = std::to_string(line.count);
  for (const Factor& factor : letters.factors(line.shape)) {
    const std::string symbol = info(factor.sym).name;
    text += " x " + (symbol.empty() ? "" : symbol + " ") + std::to_string(factor.value);
  }
  return text + " x " + std::to_string(element_bytes(line.dtype)) + " B";
}

void append_heading(std::string& out, const Prediction& p) {
  append(out, "%s, %" PRIu64 " parameters, %" PRIu64 " trainable\n", p.config.model_type.c_str(), p.params,
         p.trainable);
  constexpr const char* kShown[] = {"stack", "method",        "precision", "optimizer", "batch",
                                    "seq",   "checkpointing", "attention", "loss"};
  for (const char* key : kShown)
    append(out, "%s%s %s", key == kShown[0] ? "" : ", ", key, recipe_value(p.recipe, key).c_str());
  out += "\n\n";
}

void append_phases(std::string& out, const Prediction& p) {
  append(out, "%-18s %14s %14s %14s   %s\n", "phase", "tensors", "allocated", "reserved", "peak at");
  for (const PhasePeak& peak : p.replay.phases) {
    const Event& event = p.trace.events[peak.peak_event];
    const char* op = event.type == EventType::alloc ? op_name(p.trace.storages[event.id].op) : "";
    append(out, "%-18s %10.3f GiB %10.3f GiB %10.3f GiB   %s\n", p.trace.phases[peak.phase].c_str(),
           gib(peak.peak_bytes), gib(peak.allocated_peak_bytes), gib(peak.reserved_peak_bytes), op);
  }
}

void append_ledger(std::string& out, const Prediction& p) {
  const Bytes total = plus(p.at_peak.tensor_bytes, p.at_peak.workspace_bytes);
  append(out, "\nat the peak of tensors\n");
  for (std::size_t i = 0; i < kCategories; ++i) {
    const Bytes bytes = p.at_peak.categories[i];
    if (bytes == 0) continue;
    append(out, "  %-22s %10.3f GiB %5.1f %%\n", category_name(static_cast<Category>(i)), gib(bytes),
           100.0 * static_cast<double>(bytes) / static_cast<double>(total));
  }
  append(out, "  %-22s %10.3f GiB = %" PRIu64 " B\n\nlargest lines\n", "sum", gib(total), total);
  const Letters letters(p.config, p.recipe);
  for (std::size_t i = 0; i < p.at_peak.lines.size() && i < kLedgerLines; ++i) {
    const LedgerLine& line = p.at_peak.lines[i];
    append(out, "  %10.3f GiB  %-44s %-18s %s\n", gib(line.bytes), p.trace.names[line.scope].c_str(),
           category_name(line.category), product(line, letters).c_str());
  }
}

void append_verdict(std::string& out, const Prediction& p) {
  const Verdict& v = p.verdict;
  const double headroom = static_cast<double>(v.headroom_bytes) / static_cast<double>(kGiB);
  append(out, "\n%s: %s (%.2f GiB, %.2f GiB after the CUDA context). ",
         v.answer == Answer::fits    ? "fits"
         : v.answer == Answer::tight ? "tight"
                                     : "does not fit",
         p.gpu->name, gib(v.capacity_bytes), gib(v.usable_bytes));
  if (v.fragmentation) {
    append(out, "Live memory would fit, but free memory is in pieces.");
  } else {
    append(out, "%s %.2f GiB.", headroom < 0 ? "Short by" : "Headroom", headroom < 0 ? -headroom : headroom);
  }
  append(out, " Largest block: %s.\n", category_name(v.largest_category));
}

// Offloaded optimizers and parameters: not on the card, but a machine must have it, once for each of its GPUs.
void append_host(std::string& out, const Prediction& p) {
  const std::vector<HostLine> lines = host_ledger(p.trace);
  if (lines.empty()) return;
  Bytes sum = 0;
  for (const HostLine& line : lines)
    sum = plus(sum, line.bytes);
  append(out, "\nhost memory of this rank: %s\n", human_bytes(sum).c_str());
  for (const HostLine& line : lines)
    append(out, "  %-28s %-18s %12s\n", line.name, category_name(line.category), human_bytes(line.bytes).c_str());
}

}  // namespace

std::string human_bytes(Bytes bytes) {
  std::string out;
  if (bytes < kKiB) {
    append(out, "%" PRIu64 " B", bytes);
  } else if (bytes < kMiB) {
    append(out, "%.2f KiB", static_cast<double>(bytes) / static_cast<double>(kKiB));
  } else if (bytes < kGiB) {
    append(out, "%.2f MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  } else {
    append(out, "%.2f GiB", gib(bytes));
  }
  return out;
}

std::string count_line(const ModelConfig& config) {
  std::string out;
  append(out, "%s, %" PRIu64 " parameters\n", config.model_type.c_str(), parameter_count(config));
  return out;
}

std::string prediction_table(const Prediction& p) {
  std::string out;
  append_heading(out, p);
  append_phases(out, p);
  append_ledger(out, p);
  append_host(out, p);
  append_verdict(out, p);
  return out;
}

std::string measured_table(const Prediction& p, const Replay& measured, const std::vector<double>& phase_ms,
                           const std::vector<double>& losses) {
  std::string out;
  append_heading(out, p);
  append(out, "%-18s %16s %16s %14s %10s\n", "phase", "predicted", "measured", "difference", "time");
  for (std::size_t i = 0; i < measured.phases.size(); ++i) {
    const PhasePeak& got = measured.phases[i];
    const Bytes predicted = i < p.replay.phases.size() ? p.replay.phases[i].allocated_peak_bytes : 0;
    const auto difference = static_cast<std::int64_t>(got.allocated_peak_bytes) - static_cast<std::int64_t>(predicted);
    append(out, "%-18s %16s %16s %12" PRId64 " B %7.0f ms\n", p.trace.phases[got.phase].c_str(),
           human_bytes(predicted).c_str(), human_bytes(got.allocated_peak_bytes).c_str(), difference,
           got.phase < phase_ms.size() ? phase_ms[got.phase] : 0.0);
  }
  append(out, "\nallocated peak %s, reserved peak %s", human_bytes(measured.peak_allocated_bytes).c_str(),
         human_bytes(measured.peak_reserved_bytes).c_str());
  for (std::size_t i = 0; i < losses.size(); ++i)
    append(out, "%s%.6g", i == 0 ? "; loss " : ", ", losses[i]);
  return out + "\n";
}

std::string ranks_table(const RanksOfRun& ranks) {
  std::string out;
  if (ranks.stand_in) {
    append(out,
           "\nrank %" PRIu64 " of %" PRIu64
           ", by one process in its place: memory is true, what other ranks would "
           "have sent are copies of its own, and losses mean nothing\n",
           ranks.place.rank, ranks.place.world);
  }
  if (ranks.peaks.empty()) return out;
  append(out, "\n%-6s %16s %16s %14s %16s %12s   %s\n", "rank", "predicted", "measured", "difference", "reserved",
         "NCCL", "events");
  for (std::size_t i = 0; i < ranks.peaks.size(); ++i) {
    const RankPeaks& p = ranks.peaks[i];
    const auto difference =
        static_cast<std::int64_t>(p.allocated_bytes) - static_cast<std::int64_t>(p.predicted_allocated_bytes);
    append(out, "%-6zu %16s %16s %12" PRId64 " B %16s %12s   %s\n", i, human_bytes(p.predicted_allocated_bytes).c_str(),
           human_bytes(p.allocated_bytes).c_str(), difference, human_bytes(p.reserved_bytes).c_str(),
           p.nccl_bytes ? human_bytes(*p.nccl_bytes).c_str() : "-", p.events_identical ? "identical" : "different");
  }
  return out;
}

std::string gpu_table() {
  std::string out;
  append(out, "%-20s %-34s %12s  %s\n", "id", "name", "capacity", "source");
  for (const Gpu& gpu : gpus())
    append(out, "%-20s %-34s %8.2f GiB  %s\n", gpu.id, gpu.name, gib(gpu.usable_bytes), gpu.source);
  return out;
}

}  // namespace ledger
