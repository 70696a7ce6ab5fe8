// communicator.h - what the ranks of a run say to each other: the collectives of a trace.
//
// Buffers are dense and lie where the executor computes. Every call has a deadline; the first that fails ends it for
// good (`failure` says why), and the others of its ranks with it. Reductions add in the order of ranks, so that every
// run has the same bits; a library on GPUs adds in an order of its own. Implementations: host_communicator.h over
// sockets, cuda/nccl_communicator.h over NCCL, stand_in.h for one process alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/trace/ops.h"
#include "probe/shortage.h"

namespace ledger {

struct RankBuffer {
  std::byte* data = nullptr;
  std::uint64_t count = 0;  // elements
  DType dtype = DType::u8;

  Bytes bytes() const { return times(count, element_bytes(dtype)); }
};

// A send to another rank, or a receive from it.
struct Message {
  RankBuffer buffer;
  std::uint64_t other = 0;
  bool outgoing = false;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::uint64_t rank() const { return rank_; }
  std::uint64_t world() const { return world_; }

  // `whole` has a part of each rank; this rank's is in place.
  virtual bool all_gather(const RankBuffer& whole) = 0;
  virtual bool all_reduce(const RankBuffer& buffer, ReduceOp op) = 0;
  // This rank's part of `whole` into `part`, which may be that part itself.
  virtual bool reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp op) = 0;
  virtual bool broadcast(const RankBuffer& buffer, std::uint64_t root) = 0;
  // As many equal pieces as ranks: piece r goes to rank r, and comes from it.
  virtual bool all_to_all(const RankBuffer& out, const RankBuffer& in) = 0;
  // Returns when `buffer` may be used again; what it held may still be on its way. Messages of one tag are received in
  // the order in which they were sent; one of another tag may wait for its turn.
  virtual bool send(const RankBuffer& buffer, std::uint64_t to, std::uint32_t tag = 0) = 0;
  virtual bool receive(const RankBuffer& buffer, std::uint64_t from, std::uint32_t tag = 0) = 0;
  // Several at once: where a message cannot wait for its receiver, two ranks that send to each other must receive, too.
  virtual bool messages(std::span<const Message> batch) {
    for (const Message& one : batch) {
      if (one.outgoing && !send(one.buffer, one.other)) return false;
    }
    for (const Message& one : batch) {
      if (!one.outgoing && !receive(one.buffer, one.other)) return false;
    }
    return true;
  }
  // Some of these ranks by themselves, this one among them: `members` are their numbers here, in ascending order.
  // Whichever fails first ends both.
  virtual std::unique_ptr<Communicator> among(const std::vector<std::uint64_t>& members) = 0;
  // This rank gives up: the others end with `why` instead of waiting for it.
  virtual void abort(const std::string& why) = 0;
  // Whether nobody has given up or ended so far. Waits for nothing.
  virtual bool still_there() { return failure_->empty(); }

  const std::string& failure() const { return *failure_; }  // in English; empty while all is well
  // Where this rank failed because its device had no memory left for the library that they speak by.
  virtual std::optional<Shortage> shortage() const { return {}; }

 protected:
  Communicator(std::uint64_t rank, std::uint64_t world) : Communicator(rank, world, std::make_shared<std::string>()) {}
  Communicator(std::uint64_t rank, std::uint64_t world, std::shared_ptr<std::string> failure)
      : rank_(rank), world_(world), failure_(std::move(failure)) {}
  // `other` and this one fail together.
  Communicator(std::uint64_t rank, std::uint64_t world, const Communicator& other)
      : Communicator(rank, world, other.failure_) {}
  bool fail(const std::string& why) {
    if (failure_->empty()) *failure_ = why;
    return false;
  }

 private:
  std::uint64_t rank_, world_;
  std::shared_ptr<std::string> failure_;  // one for all groups of the same ranks
};

// Where `rank` stands in a list of members.
inline std::uint64_t place_among(const std::vector<std::uint64_t>& members, std::uint64_t rank) {
  std::uint64_t place = 0;
  while (place < members.size() && members[static_cast<std::size_t>(place)] != rank)
    ++place;
  return place;
}

}  // namespace ledger
