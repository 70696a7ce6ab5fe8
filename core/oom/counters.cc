// counters.cc - progress bars, named steps, memory logged step by step, and numbers in prose, as evidence.
#include <algorithm>

#include "core/oom/numeric.h"

namespace ledger::oom {
namespace {

using C = Cause;

struct Progress {
  std::uint64_t done = 0, total = 0;
  std::size_t at = 0;
};

// "12/882[00:16<": a progress bar; the place of its first digit.
std::vector<Progress> progress_bars(std::string_view text) {
  std::vector<Progress> bars;
  const auto digit = [&](std::size_t i) { return i < text.size() && text[i] >= '0' && text[i] <= '9'; };
  for (std::size_t slash = text.find('/'); slash != std::string_view::npos; slash = text.find('/', slash + 1)) {
    std::size_t begin = slash, end = slash + 1;
    while (begin > 0 && slash - begin < 9 && digit(begin - 1))
      --begin;
    while (digit(end) && end - slash < 10)
      ++end;
    if (begin == slash || end == slash + 1 || end >= text.size() || text[end] != '[') continue;
    Progress bar{0, 0, begin};
    for (std::size_t i = begin; i < slash; ++i)
      bar.done = bar.done * 10 + static_cast<std::uint64_t>(text[i] - '0');
    for (std::size_t i = slash + 1; i < end; ++i)
      bar.total = bar.total * 10 + static_cast<std::uint64_t>(text[i] - '0');
    bars.push_back(bar);
  }
  return bars;
}

bool is_shard_bar(std::string_view text, const Progress& bar) {
  const std::size_t from = bar.at - std::min<std::size_t>(bar.at, 120);
  return text.substr(from, bar.at - from).find("loadingcheckpointshards") != std::string_view::npos;
}

// "atstep164", "after4steps": the number of a step that people name.
std::optional<Progress> named_step(std::string_view text) {
  for (const std::string_view word : {"atstep", "tostep", "after", "around", "~"}) {
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      std::size_t end = at + word.size();
      std::uint64_t value = 0;
      while (end < text.size() && text[end] >= '0' && text[end] <= '9' && value < 1000000000)
        value = value * 10 + static_cast<std::uint64_t>(text[end++] - '0');
      const bool counted = word.ends_with("step") || text.substr(end).starts_with("step") ||
                           text.substr(end).starts_with("000step") || text.substr(end).starts_with("iter");
      if (end > at + word.size() && counted) return Progress{value, 0, at};
    }
  }
  return std::nullopt;
}

void weigh_progress(Diagnosis& d, const Squashed& squashed) {
  std::optional<Progress> step = named_step(squashed.text());
  for (const Progress& bar : progress_bars(squashed.text())) {
    if (!is_shard_bar(squashed.text(), bar)) step = bar;
  }
  const bool may_train = d.stage != Stage::load && d.stage != Stage::save && d.stage != Stage::eval;
  if (!step || !may_train) return;
  const std::string quote = squashed.quote(step->at);
  if (step->done == 0) {
    add_evidence(d, "progress_first_step", quote, 0, {{C::gradients, 5}, {C::leak, -12}});
  } else if (step->done == 1) {
    add_evidence(d, "progress_second_step", quote, 0, {{C::optimizer, 14}, {C::weights, -6}});
  } else if (step->done < 1000) {
    add_evidence(d, "progress_late", quote, 0,
                 {{C::activations, 9}, {C::optimizer, -6}, {C::weights, -8}, {C::leak, 4}});
  } else {
    add_evidence(d, "progress_very_late", quote, 0,
                 {{C::activations, 6}, {C::optimizer, -10}, {C::weights, -10}, {C::leak, 16}});
  }
}

// torchtitan and others log memory step by step: growth from one step to the next.
void weigh_logged_memory(Diagnosis& d, const Squashed& squashed) {
  constexpr std::string_view kWord = "memory:";
  const std::string_view text = squashed.text();
  Bytes first = 0, last = 0;
  std::size_t where = 0;
  for (std::size_t at = text.find(kWord); at != std::string_view::npos; at = text.find(kWord, at + 1)) {
    const auto number = number_at(text, at + kWord.size());
    if (!number || !number->bytes) continue;
    if (first == 0) first = *number->bytes;
    last = *number->bytes;
    where = at;
  }
  if (first == 0 || last <= first + first / 20) return;
  add_evidence(d, "memory_grows_between_steps", squashed.quote(where), last - first,
               {{C::fragmentation, 18}, {C::optimizer, 6}, {C::leak, 8}});
}

void weigh_trainable_share(Diagnosis& d, const Squashed& squashed) {
  constexpr std::string_view kWord = "trainable%:";
  const std::size_t at = squashed.text().find(kWord);
  if (at == std::string_view::npos) return;
  const std::string_view digits = squashed.text().substr(at + kWord.size(), 2);  // "0." or "4.": below ten
  if (digits.size() == 2 && digits[0] >= '0' && digits[0] <= '9' && digits[1] == '.') {
    add_evidence(d, "few_trainable", squashed.quote(at), 0,
                 {{C::optimizer, -10}, {C::gradients, -10}, {C::activations, 6}, {C::sharding, 3}});
  }
}

void weigh_summed_loss(Diagnosis& d, const Squashed& squashed) {
  constexpr std::string_view kWord = "+=loss";
  const std::string_view text = squashed.text();
  const std::size_t at = text.find(kWord);
  if (at == std::string_view::npos) return;
  const std::string_view rest = text.substr(at + kWord.size());
  if (rest.starts_with(".item") || rest.starts_with(".detach") || rest.starts_with(".float().item")) return;
  add_evidence(d, "loss_summed_with_graph", squashed.quote(at), 0, {{C::leak, 34}});
}

// Numbers in prose: "~20 GiB reserved but unallocated", "reserved 82GB, nvidia-smi 96GB".
void weigh_prose_numbers(Diagnosis& d, const Squashed& squashed) {
  const std::string_view text = squashed.text();
  const std::size_t idle = text.find("reservedbutunallocated");
  if (idle != std::string_view::npos) {
    const auto number = number_before(text, idle);
    if (number && number->bytes.value_or(0) >= 2 * kGiB) {
      d.fragmentation_is_real = true;
      add_evidence(d, "idle_pool", squashed.quote(idle), *number->bytes, {{C::fragmentation, 32}});
    }
  }
  const auto after = [&](std::string_view word) {
    const std::size_t at = text.find(word);
    const auto number = at == std::string_view::npos ? std::nullopt : number_at(text, at + word.size());
    return number ? number->bytes.value_or(0) : Bytes{0};
  };
  const Bytes device = after("nvidia-smi"), reserved = after("reserved"), active = after("activememory");
  if (reserved != 0 && device > reserved + reserved / 20) {
    add_evidence(d, "outside_allocator", squashed.quote(text.find("nvidia-smi")), device - reserved, {{C::comm, 18}});
  }
  if (active != 0 && reserved > active + active / 10) {
    add_evidence(d, "idle_pool", squashed.quote(text.find("reserved")), reserved - active, {{C::fragmentation, 14}});
  }
}

// People who measured several ZeRO stages and found that a higher one saved nothing: its buffers.
void weigh_stages_compared(Diagnosis& d, const Squashed& squashed) {
  std::size_t stages = 0, where = 0;
  for (const std::string_view word : {"stage1", "stage2", "stage3"}) {
    const std::size_t at = squashed.text().find(word);
    if (at == std::string_view::npos) continue;
    ++stages;
    where = at;
  }
  if (stages >= 2) add_evidence(d, "stages_compared", squashed.quote(where), 0, {{C::comm, 18}});
}

// Outside PyTorch's allocator on Apple silicon: other programs, or memory that was never given back.
void weigh_mps(Diagnosis& d, const Squashed& squashed) {
  constexpr std::string_view kWord = "otherallocations:";
  const std::size_t at = squashed.text().find(kWord);
  if (at == std::string_view::npos) return;
  const auto other = number_at(squashed.text(), at + kWord.size());
  const auto own = number_before(squashed.text(), at - std::min<std::size_t>(at, 1));
  if (!other || !own || other->bytes.value_or(0) < own->bytes.value_or(0)) return;
  add_evidence(d, "mps_other_allocations", squashed.quote(at), other->bytes.value_or(0),
               {{C::leak, 10}, {C::process, 6}});
}

void weigh_lone_lines(Diagnosis& d, const Squashed& squashed) {
  for (const std::string_view line : {"Killed", "MemoryError"}) {
    const std::string_view text = squashed.original();
    for (std::size_t at = text.find(line); at != std::string_view::npos; at = text.find(line, at + 1)) {
      const bool begins = at == 0 || text[at - 1] == '\n';
      const std::size_t end = at + line.size();
      if (!begins || (end < text.size() && text[end] != '\n' && text[end] != '\r' && text[end] != ':')) continue;
      add_evidence(d, "log_killed", std::string(line), 0, {{C::host, 30}});
      break;
    }
  }
}

}  // namespace

void weigh_counters(Diagnosis& diagnosis, const Squashed& text) {
  weigh_progress(diagnosis, text);
  weigh_logged_memory(diagnosis, text);
  weigh_trainable_share(diagnosis, text);
  weigh_summed_loss(diagnosis, text);
  weigh_prose_numbers(diagnosis, text);
  weigh_stages_compared(diagnosis, text);
  weigh_mps(diagnosis, text);
  weigh_lone_lines(diagnosis, text);
}

bool stopped_while_loading(const Squashed& squashed, std::size_t* at) {
  bool stopped = false;
  for (const Progress& bar : progress_bars(squashed.text())) {
    if (!is_shard_bar(squashed.text(), bar)) continue;
    stopped = bar.done < bar.total;
    *at = bar.at;
  }
  return stopped;
}

}  // namespace ledger::oom
