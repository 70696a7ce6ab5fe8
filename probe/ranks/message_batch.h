// message_batch.h - sends and receives that follow each other go as one.
//
// A trace may send to a neighbour and then receive from it while that one does the same. Over sockets the first message
// waits on its way; on a GPU a send ends when it is received, so that both would wait for each other. As Megatron's
// batch_isend_irecv does, what comes together is exchanged together: when something reads what is received, or writes
// anything of size, or asks the ranks for something else.
#pragma once

#include <vector>

#include "core/trace/trace.h"
#include "probe/host/host_view.h"
#include "probe/ranks/communicator.h"

namespace ledger {

class MessageBatch {
 public:
  bool empty() const { return messages_.empty(); }
  void add(Communicator& ranks, const Message& message) {
    ranks_ = &ranks;
    messages_.push_back(message);
  }
  bool of(const Communicator& ranks) const { return ranks_ == &ranks; }

  // Whether an operator may run before the messages have: it makes single numbers out of nothing.
  static bool passes(std::span<const host::HostView> in, std::span<const host::HostView> out);

  // A send whose memory will be used for something else; nullptr where there is none within [memory, memory + bytes).
  Message* sent_from(const std::byte* memory, Bytes bytes);
  std::size_t place(const Message* message) const { return static_cast<std::size_t>(message - messages_.data()); }

  bool exchange();  // all of them; false when a rank was lost

 private:
  Communicator* ranks_ = nullptr;
  std::vector<Message> messages_;
};

}  // namespace ledger
