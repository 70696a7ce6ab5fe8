// nccl_communicator.h - the collectives of ranks on GPUs, by NCCL.
//
// A communicator of NCCL's is made when a group is first used, as PyTorch's process groups do. No call waits inside the
// library: each is made without blocking, and its end waited for with a deadline, while the connections between the
// ranks' processes (`control`) tell of one that ended. Whatever goes wrong aborts all communicators, which ends what
// still runs on the GPU, and is told to the other ranks. Collectives do not overlap with computing: each is over when
// its call returns.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "probe/cuda/nccl.h"
#include "probe/measured_device.h"
#include "probe/ranks/communicator.h"

namespace ledger::cuda {

class NcclCommunicator : public Communicator {
 public:
  // All outlive it; `control` connects the same ranks.
  NcclCommunicator(const Nccl& library, MeasuredDevice& device, Communicator& control, double timeout_s);

  bool all_gather(const RankBuffer& whole) override;
  bool all_reduce(const RankBuffer& buffer, ReduceOp op) override;  // not ReduceOp::norm
  bool reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp op) override;
  bool broadcast(const RankBuffer& buffer, std::uint64_t root) override;
  bool all_to_all(const RankBuffer& out, const RankBuffer& in) override;
  bool send(const RankBuffer& buffer, std::uint64_t to, std::uint32_t tag) override;  // NCCL has no tags
  bool receive(const RankBuffer& buffer, std::uint64_t from, std::uint32_t tag) override;
  bool messages(std::span<const Message> batch) override;
  std::unique_ptr<Communicator> among(const std::vector<std::uint64_t>& members) override;
  void abort(const std::string& why) override;
  bool still_there() override { return control_.still_there(); }

  std::optional<Shortage> shortage() const override;

  // What all groups took so far.
  NcclMemory memory() const;

 private:
  enum class Kind : std::uint8_t { all_gather, all_reduce, reduce_scatter, broadcast, all_to_all, messages };
  struct Shared;
  using Call = std::function<nccl::Result(nccl::Comm, nccl::Stream)>;

  NcclCommunicator(std::shared_ptr<Shared> shared, std::unique_ptr<Communicator> control);
  bool make();
  bool run(Kind kind, const Call& call);
  bool group(Kind kind, const Call& calls);
  bool refuse(const std::string& what) { return end("rank " + who() + ": " + what); }
  bool end(const std::string& why);
  std::string who() const;

  std::shared_ptr<Shared> shared_;
  std::unique_ptr<Communicator> own_control_;  // of a group; of all ranks it is the caller's
  Communicator& control_;
  std::size_t number_ = 0;  // in Shared::made, from 1; 0 before the first use
  unsigned used_ = 0;       // kinds, a bit each
};

}  // namespace ledger::cuda
