// host_communicator.h - the collectives of some ranks over their connections.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "probe/ranks/communicator.h"
#include "probe/ranks/connections.h"

namespace ledger {

class HostCommunicator : public Communicator {
 public:
  // `peers` by rank; that of `rank` itself is empty.
  HostCommunicator(std::uint64_t rank, std::vector<Socket> peers, double timeout_s);

  bool all_gather(const RankBuffer& whole) override;
  bool all_reduce(const RankBuffer& buffer, ReduceOp op) override;
  bool reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp op) override;
  bool broadcast(const RankBuffer& buffer, std::uint64_t root) override;
  bool all_to_all(const RankBuffer& out, const RankBuffer& in) override;
  bool send(const RankBuffer& buffer, std::uint64_t to, std::uint32_t tag) override;
  bool receive(const RankBuffer& buffer, std::uint64_t from, std::uint32_t tag) override;
  std::unique_ptr<Communicator> among(const std::vector<std::uint64_t>& members) override;
  void abort(const std::string& why) override { connections_->abort(why); }
  bool still_there() override { return connections_->listen(); }

 private:
  HostCommunicator(std::uint64_t rank, std::vector<std::uint64_t> members, std::shared_ptr<std::string> failure,
                   std::shared_ptr<Connections> connections);
  std::uint64_t number(std::uint64_t member) const { return members_[static_cast<std::size_t>(member)]; }
  void give(std::uint64_t to, std::span<const std::byte> bytes) { connections_->give(number(to), bytes); }
  void take(std::uint64_t from, std::span<std::byte> bytes) { connections_->take(number(from), bytes); }

  std::vector<std::uint64_t> members_;  // their numbers among all that are connected
  std::shared_ptr<std::string> failure_;
  std::shared_ptr<Connections> connections_;
};

}  // namespace ledger
