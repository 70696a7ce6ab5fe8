// message_batch.h - sends and receives that follow each other go as one.
//
// A trace may send to a neighbour and then receive from it while that one does the same. Over sockets the first message
// waits on its way; on a GPU a send ends when it is received, so that both would wait for each other. As Megatron's
// batch_isend_irecv does, what comes together is exchanged together: when something reads what is received, or writes
// anything of size, or asks the ranks for something else. Between stages of a pipeline that is not enough, and messages
// follow a plan (message_plan.h): a send then waits for its turn.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "core/trace/trace.h"
#include "probe/host/host_view.h"
#include "probe/ranks/communicator.h"
#include "probe/ranks/message_plan.h"

namespace ledger {

class MessageBatch {
 public:
  struct Waiting {
    Message message;
    std::size_t turn = 0;                // in the plan
    std::optional<std::size_t> aside{};  // number of a copy of what is sent
  };

  void follow(const StageTurns& plan);

  bool empty() const { return waiting_.empty(); }
  // Nothing waits but copies of what is sent, for their turn: they hinder no other messages.
  bool rests() const;
  void add(Communicator& ranks, const Message& message, std::uint32_t tag);
  bool of(const Communicator& ranks) const { return ranks_ == &ranks; }

  // Whether an operator may run before the messages have: it makes single numbers out of nothing.
  static bool passes(std::span<const host::HostView> in, std::span<const host::HostView> out);

  // A send whose memory will be used for something else; nullptr where there is none within [memory, memory + bytes).
  Waiting* sent_from(const std::byte* memory, Bytes bytes);
  // A send that waits for its turn, and of which there is no copy; nullptr where there is none.
  Waiting* not_aside();
  std::size_t free_aside() const;  // a number that no copy has

  bool exchange();  // all of them, or of a plan as many as have their turn; false when a rank was lost
  // A collective of several stages has its turn, after exchange(). False: it has none.
  bool meet(Communicator& all);

 private:
  using Key = std::array<std::uint64_t, 3>;  // kind, other, tag
  bool exchange_planned();
  std::optional<std::size_t> waiting_at(std::size_t turn) const;
  static bool out_of_turn(Communicator& ranks);

  Communicator* ranks_ = nullptr;
  std::vector<Waiting> waiting_;
  StageTurns plan_;
  std::size_t next_ = 0;                           // the first turn that is not over
  bool unplanned_ = false;                         // there was a message without a turn
  std::map<Key, std::vector<std::size_t>> turns_;  // of messages of one kind, the last first
};

}  // namespace ledger
