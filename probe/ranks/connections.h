// connections.h - a TCP connection from one rank to each other, and exchanges over them.
//
// Everything is one exchange: bytes go out to some ranks and come in from some, all at once. A message says which one
// between its two ranks it is, so that ranks that ran apart are told, not left with each other's numbers. Messages that
// were posted have tags: one that comes while another tag's is waited for is kept until it is asked for. A rank from
// which nothing comes for `timeout_s` is given up; one that has ended is known at once, and named to the others.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "probe/ranks/sockets.h"

namespace ledger {

class Connections {
 public:
  // `peers` by rank; that of `rank` itself is empty. `failure` says why it ended, once it has.
  Connections(std::uint64_t rank, std::vector<Socket> peers, double timeout_s, std::shared_ptr<std::string> failure);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  void give(std::uint64_t to, std::span<const std::byte> bytes) { peer(to).out = bytes; }
  void take(std::uint64_t from, std::span<std::byte> bytes, std::uint32_t tag = kCollective);
  bool exchange();  // what give() and take() named
  // A message that goes when it can: with this call, or with exchanges that follow.
  bool post(std::uint64_t to, std::span<const std::byte> bytes, std::uint32_t tag);
  void abort(const std::string& why);
  // Between exchanges: false once a rank has given up or ended. Waits for nothing.
  bool listen();

 private:
  static constexpr std::uint32_t kCollective = 0;
  struct Header {
    std::uint32_t magic = 0;
    std::uint32_t kind = 0;
    std::uint64_t number = 0;  // of the message to this peer
    std::uint64_t bytes = 0;
    std::uint64_t tag = kCollective;
  };
  struct Kept {
    std::uint64_t tag = kCollective;
    std::vector<std::byte> bytes;
  };
  struct Peer {
    Socket socket;
    std::uint64_t sent = 0, received = 0;  // messages
    std::vector<std::byte> posted;         // heads and bodies, before what is given
    std::size_t posted_at = 0;
    // Of the exchange in progress.
    std::span<const std::byte> out;
    std::span<std::byte> in;
    Header out_head, in_head;
    std::size_t out_at = 0, in_at = 0;  // bytes of head and body together
    std::uint64_t tag = kCollective;    // of what is taken
    std::deque<Kept> kept;              // came before it was asked for
    bool keeps = false;                 // the last of them is coming

    // The rest of what was posted, or of the head, or of the body.
    std::span<const std::byte> unsent() const {
      if (!posted.empty()) return std::span(posted).subspan(posted_at);
      const auto head = std::as_bytes(std::span(&out_head, 1));
      return out_at < head.size() ? head.subspan(out_at) : out.subspan(out_at - head.size());
    }
    bool gives() const { return !out.empty() && out_at < sizeof(Header) + out.size(); }
    bool sends() const { return !posted.empty() || gives(); }
    std::span<std::byte> body() { return keeps ? std::span(kept.back().bytes) : in; }
    bool receives() const { return !in.empty() && (keeps || in_at < sizeof(Header) + in.size()); }
    void moved(std::size_t bytes);
  };

  Peer& peer(std::uint64_t rank) { return peers_[static_cast<std::size_t>(rank)]; }
  bool wait(std::vector<std::size_t>& ready);
  bool send_more(std::size_t rank);
  bool receive_more(std::size_t rank);
  bool check_head(std::size_t rank);
  bool hear_reason(std::size_t rank, const Header& head);
  bool ended(std::size_t rank);
  bool apart(std::size_t rank);
  bool lose(const std::string& why);
  bool end_message(Peer& p, Deadline deadline);
  std::string silent_ranks() const;

  std::uint64_t rank_;
  std::vector<Peer> peers_;
  double timeout_s_;
  std::shared_ptr<std::string> failure_;
};

}  // namespace ledger
