// host_communicator.h - the collectives over one TCP connection between each two ranks.
//
// Everything is one exchange: bytes go out to some ranks and come in from some, all at once. A message says which
// exchange it belongs to, so that ranks that ran apart are told, not left with each other's numbers. A rank from which
// nothing comes for `timeout_s` is given up; one that has ended is known at once, and named to the others.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "probe/ranks/communicator.h"
#include "probe/ranks/sockets.h"

namespace ledger {

class HostCommunicator : public Communicator {
 public:
  // `peers` by rank; that of `rank` itself is empty.
  HostCommunicator(std::uint64_t rank, std::vector<Socket> peers, double timeout_s);
  ~HostCommunicator() override;

  bool all_gather(const RankBuffer& whole) override;
  bool all_reduce(const RankBuffer& buffer, ReduceOp op) override;
  bool reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp op) override;
  bool broadcast(const RankBuffer& buffer, std::uint64_t root) override;
  bool all_to_all(const RankBuffer& out, const RankBuffer& in) override;
  bool send(const RankBuffer& buffer, std::uint64_t to) override;
  bool receive(const RankBuffer& buffer, std::uint64_t from) override;
  void abort(const std::string& why) override;

 private:
  struct Header {
    std::uint32_t magic = 0;
    std::uint32_t kind = 0;
    std::uint64_t number = 0;  // of the message to this peer
    std::uint64_t bytes = 0;
  };
  struct Peer {
    Socket socket;
    std::uint64_t sent = 0, received = 0;  // messages
    // Of the exchange in progress.
    std::span<const std::byte> out;
    std::span<std::byte> in;
    Header out_head, in_head;
    std::size_t out_at = 0, in_at = 0;  // bytes of head and body together

    // The rest of the head, then of the body.
    std::span<const std::byte> unsent() const {
      const auto head = std::as_bytes(std::span(&out_head, 1));
      return out_at < head.size() ? head.subspan(out_at) : out.subspan(out_at - head.size());
    }
    bool sends() const { return !out.empty() && out_at < sizeof(Header) + out.size(); }
    bool receives() const { return !in.empty() && in_at < sizeof(Header) + in.size(); }
  };

  Peer& peer(std::uint64_t rank) { return peers_[static_cast<std::size_t>(rank)]; }
  void give(std::uint64_t to, std::span<const std::byte> bytes) { peer(to).out = bytes; }
  void take(std::uint64_t from, std::span<std::byte> bytes) { peer(from).in = bytes; }
  bool exchange();  // what give() and take() named
  bool wait(std::vector<std::size_t>& ready);
  bool send_more(std::size_t rank);
  bool receive_more(std::size_t rank);
  bool check_head(std::size_t rank);
  bool ended(std::size_t rank);
  bool lose(const std::string& why);
  bool end_message(Peer& p, Deadline deadline);
  std::string silent_ranks() const;

  std::vector<Peer> peers_;
  double timeout_s_;
};

}  // namespace ledger
