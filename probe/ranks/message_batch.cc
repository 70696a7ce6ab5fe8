#include "probe/ranks/message_batch.h"

#include <algorithm>
#include <utility>

namespace ledger {

bool MessageBatch::passes(std::span<const host::HostView> in, std::span<const host::HostView> out) {
  return in.empty() && std::all_of(out.begin(), out.end(), [](const host::HostView& v) { return v.numel() <= 1; });
}

Message* MessageBatch::sent_from(const std::byte* memory, Bytes bytes) {
  const auto found = std::find_if(messages_.begin(), messages_.end(), [&](const Message& m) {
    return m.outgoing && m.buffer.data >= memory && m.buffer.data < memory + bytes;
  });
  return found == messages_.end() ? nullptr : &*found;
}

bool MessageBatch::exchange() {
  if (messages_.empty()) return true;
  const std::vector<Message> batch = std::exchange(messages_, {});
  return ranks_->messages(batch);
}

}  // namespace ledger
