#include "core/oom/numeric.h"

#include <algorithm>

namespace ledger::oom {
namespace {

using C = Cause;

// Thresholds from 61 messages with numbers: other processes left 3.4 GiB and more unaccounted for, everything else
// (CUDA contexts, NCCL, libraries) less than 2.8; idle pools of a tenth of the card were real fragmentation.
constexpr Bytes kLeastOther = 3 * kGiB;
constexpr Bytes kTenth = 10;
constexpr std::size_t kRanksOnOneCard = 3;
constexpr std::uint64_t kNeighbouringIds = 64;  // one launcher's children

Bytes minus(Bytes a, Bytes b) {
  return a > b ? a - b : 0;
}

// Memory that neither this process nor the free list accounts for.
Bytes other_processes(const Message& message) {
  Bytes listed = 0;
  for (const ProcessUse& process : message.processes)
    listed = plus(listed, process.bytes.value_or(0));
  const auto& capacity = message[Field::capacity];
  const auto& free = message[Field::free];
  const auto& own = message[Field::this_process] && *message[Field::this_process] > 0 ? message[Field::this_process]
                                                                                      : message[Field::reserved];
  if (!capacity || !free || !own) return listed;
  // Only a process that holds something can be told from a container that hides all sizes.
  const bool hidden = !message.processes.empty() && listed == 0;
  return hidden ? 0 : std::max(listed, minus(*capacity, plus(*free, *own)));
}

bool neighbours(const std::vector<ProcessUse>& processes) {
  if (processes.empty()) return false;
  const auto [low, high] = std::minmax_element(processes.begin(), processes.end(),
                                               [](const auto& a, const auto& b) { return a.pid < b.pid; });
  return high->pid - low->pid <= kNeighbouringIds;
}

void weigh_processes(Diagnosis& d, const std::string& quote, const Message& message) {
  const Bytes other = other_processes(message);
  const Bytes capacity = message[Field::capacity].value_or(0);
  const bool large = other >= kLeastOther && other >= capacity / kTenth;
  const bool spilled = message[Field::allocated].value_or(0) > capacity;
  const bool siblings = message.processes.size() >= kRanksOnOneCard && neighbours(message.processes);
  if (siblings && other < kLeastOther) {
    add_evidence(d, "ranks_on_one_card", quote, 0, {{C::sharding, 30}, {C::process, 12}});
  } else if (large && !spilled) {
    d.other_process_bytes = other;
    add_evidence(d, "other_process_bytes", quote, other, {{C::process, 44}, {C::sharding, siblings ? 14 : 0}});
  }
}

void weigh_idle_pool(Diagnosis& d, const std::string& quote, const Message& message) {
  const auto& idle = message[Field::unallocated];
  if (!idle || *idle == 0) return;
  const Bytes whole = message[Field::capacity].value_or(message[Field::reserved].value_or(0));
  const bool enough = !message[Field::requested] || *idle >= *message[Field::requested];
  d.fragmentation_is_real = enough && whole > 0 && *idle >= whole / kTenth;
  // At most two of the allocator's 20 MiB buffers unfilled: nothing was freed yet, as while loading or creating states.
  constexpr Bytes kTight = 48 * kMiB, kLarge = 4 * kGiB;
  const bool tight = *idle <= kTight && message[Field::allocated].value_or(0) >= kLarge;
  if (tight) {
    add_evidence(d, "tight_pool", quote, *idle,
                 {{C::weights, 6}, {C::optimizer, 4}, {C::sharding, 2}, {C::activations, -6}, {C::logits, -4}});
  }
  if (enough && !d.fragmentation_is_real) add_evidence(d, "idle_pool_small", quote, *idle, {{C::fragmentation, 8}});
  if (d.fragmentation_is_real) add_evidence(d, "idle_pool", quote, *idle, {{C::fragmentation, 32}});
}

// The request is usually the last straw; from a tenth of the card on it is itself the culprit.
void weigh_request(Diagnosis& d, const std::string& quote, const Message& message) {
  const auto& request = message[Field::requested];
  if (!request) return;
  const Bytes capacity = message[Field::capacity].value_or(0);
  const Bytes allocated = message[Field::allocated].value_or(0);
  const Bytes copies = *request == 0 ? 0 : (allocated + *request / 2) / *request;
  const Bytes off = allocated > copies * *request ? allocated - copies * *request : copies * *request - allocated;
  const bool whole = copies >= 1 && copies <= 8 && off <= *request / 25;
  if (capacity > 0 && *request > capacity) {
    if (whole && copies >= 2) {
      add_evidence(d, "whole_copies", quote, *request, {{C::optimizer, 24}});
    } else {
      add_evidence(d, "request_above_capacity", quote, *request, {{C::activations, 8}, {C::unknown, 8}});
    }
    return;
  }
  if (capacity == 0 || *request < capacity / kTenth) return;
  if (whole && copies >= 2) {
    add_evidence(d, "whole_copies", quote, *request, {{C::optimizer, 16}, {C::gradients, 4}});
  } else {
    add_evidence(d, "large_request", quote, *request,
                 {{C::activations, 8}, {C::logits, 8}, {C::optimizer, 4}, {C::weights, -6}, {C::gradients, 2}});
  }
}

void weigh_room(Diagnosis& d, const std::string& quote, const Message& message) {
  const auto& request = message[Field::requested];
  const auto& free = message[Field::free];
  const Bytes capacity = message[Field::capacity].value_or(0);
  if (!request || !free || *request >= *free) return;
  const bool empty = *free >= capacity / 2;
  add_evidence(d, "request_below_free", quote, *free, {{C::unknown, empty ? 30 : 0}});
}

// Sharding takes several ranks: a message that stands alone, about the first card, without a word of any other.
void weigh_single_card(Diagnosis& d, const Squashed& text, const Message& message) {
  if (message.gpu.value_or(0) != 0) return;
  for (const std::string_view word : {"rank", "deepspeed", "fsdp", "distributed", "zero", "nccl", "torchrun", "gpus",
                                      "launch", "ddp", "worker", "cards", "\xe5\x8d\xa1", "megatron", "parallel"}) {
    if (text.text().find(word) != std::string_view::npos) return;
  }
  add_evidence(d, "device_alone", {}, 0, {{C::sharding, -10}, {C::comm, -8}});
}

}  // namespace

void add_evidence(Diagnosis& diagnosis, const char* id, std::string quote, Bytes bytes,
                  std::initializer_list<std::pair<Cause, int>> weights) {
  Evidence evidence{id, std::move(quote), bytes, {}};
  for (const auto& [cause, tenths] : weights)
    evidence.weight[static_cast<std::size_t>(cause)] = static_cast<std::int8_t>(tenths);
  diagnosis.evidence.push_back(std::move(evidence));
}

const Message* main_message(const std::vector<Message>& messages) {
  const Message* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const Message& message : messages) {
    if (message.memory != Memory::device || !message.stated) continue;
    const auto count = std::count_if(message.bytes.begin(), message.bytes.end(), [](const auto& b) { return !!b; });
    if (best == nullptr || count > most) best = &message, most = count;
  }
  return best;
}

void weigh_message(Diagnosis& diagnosis, const Squashed& text, const Message& message) {
  const std::string quote = text.quote(message.at);
  // A device's allocator refused: the host is not what ran out.
  add_evidence(diagnosis, "device_message", quote, 0,
               {{C::host, -25}, {C::eval, -3}, {C::kv_cache, -6}, {C::comm, -3}});
  weigh_processes(diagnosis, quote, message);
  weigh_idle_pool(diagnosis, quote, message);
  weigh_request(diagnosis, quote, message);
  weigh_room(diagnosis, quote, message);
  weigh_single_card(diagnosis, text, message);
}

}  // namespace ledger::oom
