#include "probe/ranks/host_communicator.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "probe/ranks/reduce.h"

namespace ledger {
namespace {

constexpr std::uint32_t kMagic = 0x4D4C4458;  // "MLDX"
constexpr std::uint32_t kData = 1, kAbort = 2;
constexpr std::uint64_t kMostReason = 4096;
constexpr double kAbortSeconds = 1;
constexpr int kDrainMs = 5;

// Where part r of n begins when `count` elements are cut as evenly as can be.
std::uint64_t cut_at(std::uint64_t count, std::uint64_t r, std::uint64_t n) {
  return count / n * r + std::min(count % n, r);
}

RankBuffer slice(const RankBuffer& buffer, std::uint64_t from, std::uint64_t to) {
  return {buffer.data + from * element_bytes(buffer.dtype), to - from, buffer.dtype};
}

std::span<std::byte> memory(const RankBuffer& buffer) {
  return {buffer.data, static_cast<std::size_t>(buffer.bytes())};
}

std::string name(std::uint64_t rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

HostCommunicator::HostCommunicator(std::uint64_t rank, std::vector<Socket> peers, double timeout_s)
    : Communicator(rank, peers.size()), peers_(peers.size()), timeout_s_(timeout_s) {
  for (std::size_t i = 0; i < peers.size(); ++i)
    peers_[i].socket = std::move(peers[i]);
}

// --- one exchange
// -------------------------------------------------------------------------------------------------------------

bool HostCommunicator::exchange() {
  if (!failure().empty()) return false;
  for (Peer& p : peers_) {
    p.out_at = p.in_at = 0;
    if (!p.out.empty()) p.out_head = {kMagic, kData, p.sent++, p.out.size()};
  }
  bool well = true;
  std::vector<std::size_t> ready;
  const auto busy = [](const Peer& p) { return p.sends() || p.receives(); };
  while (well && std::any_of(peers_.begin(), peers_.end(), busy)) {
    well = wait(ready);
    for (std::size_t i = 0; well && i < ready.size(); ++i) {
      Peer& p = peers_[ready[i]];
      if (p.receives()) well = receive_more(ready[i]);
      if (well && p.sends()) well = send_more(ready[i]);
    }
  }
  for (Peer& p : peers_) {
    if (!p.in.empty()) ++p.received;
    p.out = {};
    p.in = {};
  }
  return well;
}

// The ranks with which something may move now.
bool HostCommunicator::wait(std::vector<std::size_t>& ready) {
  std::vector<pollfd> pollers;
  ready.clear();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const Peer& p = peers_[i];
    const int events = (p.sends() ? POLLOUT : 0) | (p.receives() ? POLLIN : 0);
    if (events == 0) continue;
    pollers.push_back({p.socket.descriptor(), static_cast<short>(events), 0});
    ready.push_back(i);
  }
  const Deadline deadline = in_seconds(timeout_s_);
  int count = 0;
  do {
    count = poll(pollers.data(), pollers.size(), milliseconds_left(deadline));
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    return lose(silent_ranks() + " did not answer for " + std::to_string(static_cast<std::uint64_t>(timeout_s_)) +
                " s");
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pollers.size(); ++i) {
    if (pollers[i].revents != 0) ready[kept++] = ready[i];
  }
  ready.resize(kept);
  return true;
}

bool HostCommunicator::send_more(std::size_t rank) {
  Peer& p = peers_[rank];
  const std::optional<std::size_t> moved = p.socket.send_some(p.unsent());
  if (!moved) return ended(rank);
  p.out_at += *moved;
  return true;
}

bool HostCommunicator::receive_more(std::size_t rank) {
  Peer& p = peers_[rank];
  const auto head = std::as_writable_bytes(std::span(&p.in_head, 1));
  const bool in_head = p.in_at < head.size();
  const std::optional<std::size_t> moved =
      p.socket.receive_some(in_head ? head.subspan(p.in_at) : p.in.subspan(p.in_at - head.size()));
  if (!moved) return ended(rank);
  p.in_at += *moved;
  return !in_head || p.in_at < head.size() || check_head(rank);
}

bool HostCommunicator::check_head(std::size_t rank) {
  const Peer& p = peers_[rank];
  const Header& head = p.in_head;
  if (head.magic == kMagic && head.kind == kAbort && head.bytes <= kMostReason) {
    std::string why(static_cast<std::size_t>(head.bytes), ' ');
    const bool heard = p.socket.receive_all(std::as_writable_bytes(std::span(why)), in_seconds(kAbortSeconds));
    return lose(heard ? why : name(rank) + " gave up");
  }
  if (head.magic == kMagic && head.number == p.received && head.bytes == p.in.size()) return true;
  return lose(name(rank) + " is at another operator than " + name(this->rank()) + ": their traces differ");
}

// A connection that breaks may have said why before it did.
bool HostCommunicator::ended(std::size_t rank) {
  const Peer& p = peers_[rank];
  Header head;
  const bool between = p.in_at == 0 || p.in.empty();
  if (between && p.socket.receive_all(std::as_writable_bytes(std::span(&head, 1)), Clock::now()) &&
      head.magic == kMagic && head.kind == kAbort && head.bytes <= kMostReason) {
    std::string why(static_cast<std::size_t>(head.bytes), ' ');
    if (p.socket.receive_all(std::as_writable_bytes(std::span(why)), Clock::now())) return lose(why);
  }
  return lose(name(rank) + " ended before the run did");
}

bool HostCommunicator::lose(const std::string& why) {
  abort(why);
  return false;
}

std::string HostCommunicator::silent_ranks() const {
  std::string ranks;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].sends() || peers_[i].receives()) ranks += (ranks.empty() ? "" : ", ") + std::to_string(i);
  }
  return "rank " + ranks;
}

bool HostCommunicator::end_message(Peer& p, Deadline deadline) {
  while (p.out_at != 0 && p.sends()) {
    const std::span<const std::byte> rest = p.unsent();
    if (!p.socket.send_all(rest, deadline)) return false;
    p.out_at += rest.size();
  }
  return true;
}

// A message that has begun is ended first: what follows it can then be understood.
void HostCommunicator::abort(const std::string& why) {
  if (!failure().empty()) return;
  fail(why);
  const Deadline deadline = in_seconds(kAbortSeconds);
  for (Peer& p : peers_) {
    if (!p.socket) continue;
    const Header head{kMagic, kAbort, p.sent, why.size()};
    if (end_message(p, deadline) && p.socket.send_all(std::as_bytes(std::span(&head, 1)), deadline))
      p.socket.send_all(std::as_bytes(std::span(why)), deadline);
    shutdown(p.socket.descriptor(), SHUT_WR);
  }
}

// A connection closed with bytes unread is reset, and may take with it what was said last: read on to the end first.
HostCommunicator::~HostCommunicator() {
  if (failure().empty()) return;
  const Deadline deadline = in_seconds(kAbortSeconds);
  std::array<std::byte, 4096> rest{};
  for (const Peer& p : peers_) {
    while (p.socket && milliseconds_left(deadline) > 0) {
      const std::optional<std::size_t> read = p.socket.receive_some(rest);
      if (!read) break;
      if (*read == 0) poll(nullptr, 0, kDrainMs);
    }
  }
}

// --- collectives
// --------------------------------------------------------------------------------------------------------------

bool HostCommunicator::all_gather(const RankBuffer& whole) {
  for (std::uint64_t r = 0; r < world(); ++r) {
    if (r == rank()) continue;
    give(r, memory(slice(whole, cut_at(whole.count, rank(), world()), cut_at(whole.count, rank() + 1, world()))));
    take(r, memory(slice(whole, cut_at(whole.count, r, world()), cut_at(whole.count, r + 1, world()))));
  }
  return exchange();
}

bool HostCommunicator::reduce_scatter(const RankBuffer& whole, const RankBuffer& part, ReduceOp op) {
  std::vector<std::vector<std::byte>> received(static_cast<std::size_t>(world()));
  std::vector<const std::byte*> parts;
  for (std::uint64_t r = 0; r < world(); ++r) {
    const RankBuffer piece = slice(whole, cut_at(whole.count, r, world()), cut_at(whole.count, r + 1, world()));
    if (r == rank()) {
      parts.push_back(piece.data);
      continue;
    }
    std::vector<std::byte>& buffer = received[static_cast<std::size_t>(r)];
    buffer.resize(static_cast<std::size_t>(part.bytes()));
    parts.push_back(buffer.data());
    give(r, memory(piece));
    take(r, buffer);
  }
  if (!exchange()) return false;
  reduce_parts(parts, part, op);
  return true;
}

// Each rank reduces a part, and all of them are gathered: every rank has the very same bits.
bool HostCommunicator::all_reduce(const RankBuffer& buffer, ReduceOp op) {
  const RankBuffer own =
      slice(buffer, cut_at(buffer.count, rank(), world()), cut_at(buffer.count, rank() + 1, world()));
  return reduce_scatter(buffer, own, op) && all_gather(buffer);
}

bool HostCommunicator::broadcast(const RankBuffer& buffer, std::uint64_t root) {
  for (std::uint64_t r = 0; root == rank() && r < world(); ++r) {
    if (r != rank()) give(r, memory(buffer));
  }
  if (root != rank()) take(root, memory(buffer));
  return exchange();
}

bool HostCommunicator::all_to_all(const RankBuffer& out, const RankBuffer& in) {
  const std::uint64_t out_part = out.count / world(), in_part = in.count / world();
  for (std::uint64_t r = 0; r < world(); ++r) {
    const RankBuffer to = slice(out, out_part * r, out_part * (r + 1));
    const RankBuffer from = slice(in, in_part * r, in_part * (r + 1));
    if (r == rank()) {
      std::memmove(from.data, to.data, static_cast<std::size_t>(from.bytes()));
    } else {
      give(r, memory(to));
      take(r, memory(from));
    }
  }
  return exchange();
}

bool HostCommunicator::send(const RankBuffer& buffer, std::uint64_t to) {
  give(to, memory(buffer));
  return exchange();
}

bool HostCommunicator::receive(const RankBuffer& buffer, std::uint64_t from) {
  take(from, memory(buffer));
  return exchange();
}

}  // namespace ledger
