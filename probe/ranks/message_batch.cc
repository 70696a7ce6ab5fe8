#include "probe/ranks/message_batch.h"

#include <algorithm>
#include <utility>

namespace ledger {

void MessageBatch::follow(const StageTurns& plan) {
  plan_ = plan;
  for (std::size_t i = plan.size(); i-- > 0;)
    turns_[{plan[i].kind, plan[i].other, plan[i].tag}].push_back(i);
}

void MessageBatch::add(Communicator& ranks, const Message& message, std::uint32_t tag) {
  ranks_ = &ranks;
  Waiting one{message, plan_.size()};
  if (!plan_.empty()) {
    std::vector<std::size_t>& left =
        turns_[{message.outgoing ? StageTurn::send : StageTurn::receive, message.other, tag}];
    unplanned_ |= left.empty();
    if (!left.empty()) {
      one.turn = left.back();
      left.pop_back();
    }
  }
  waiting_.push_back(one);
}

bool MessageBatch::passes(std::span<const host::HostView> in, std::span<const host::HostView> out) {
  return in.empty() && std::all_of(out.begin(), out.end(), [](const host::HostView& v) { return v.numel() <= 1; });
}

MessageBatch::Waiting* MessageBatch::sent_from(const std::byte* memory, Bytes bytes) {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
    const std::byte* const data = w.message.buffer.data;
    return w.message.outgoing && !w.aside && data >= memory && data < memory + bytes;
  });
  return found == waiting_.end() ? nullptr : &*found;
}

MessageBatch::Waiting* MessageBatch::not_aside() {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.message.outgoing && !w.aside; });
  return found == waiting_.end() ? nullptr : &*found;
}

bool MessageBatch::rests() const {
  return std::all_of(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.aside.has_value(); });
}

std::size_t MessageBatch::free_aside() const {
  std::size_t number = 0;
  const auto is_taken = [&](const Waiting& w) { return w.aside == number; };
  while (std::any_of(waiting_.begin(), waiting_.end(), is_taken))
    ++number;
  return number;
}

bool MessageBatch::exchange() {
  if (waiting_.empty()) return true;
  if (!plan_.empty()) return exchange_planned();
  std::vector<Message> batch;
  for (const Waiting& one : std::exchange(waiting_, {}))
    batch.push_back(one.message);
  return ranks_->messages(batch);
}

std::optional<std::size_t> MessageBatch::waiting_at(std::size_t turn) const {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.turn == turn; });
  return found == waiting_.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - waiting_.begin()));
}

bool MessageBatch::out_of_turn(Communicator& ranks) {
  ranks.abort("a message between stages has no turn in what they agreed on");
  return false;
}

// Up to the last that is received, and all sends whose turn is right after it.
bool MessageBatch::exchange_planned() {
  std::size_t end = next_;
  for (const Waiting& one : waiting_) {
    if (!one.message.outgoing) end = std::max(end, one.turn + 1);
  }
  std::vector<Message> batch;
  while (next_ < plan_.size()) {
    const std::optional<std::size_t> place = waiting_at(next_);
    if (!place) break;
    batch.push_back(waiting_[*place].message);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(*place));
    ++next_;
  }
  if (unplanned_ || next_ < end) return out_of_turn(*ranks_);
  return batch.empty() || ranks_->messages(batch);
}

bool MessageBatch::meet(Communicator& all) {
  if (plan_.empty()) return true;
  if (next_ < plan_.size() && plan_[next_].kind == StageTurn::together) {
    ++next_;
    return true;
  }
  return out_of_turn(all);
}

}  // namespace ledger
