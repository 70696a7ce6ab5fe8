#include "probe/ranks/connections.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ledger {
namespace {

constexpr std::uint32_t kMagic = 0x4D4C4458;  // "MLDX"
constexpr std::uint32_t kData = 1, kAbort = 2;
constexpr std::uint64_t kMostReason = 4096, kMostKept = std::uint64_t{1} << 40;
constexpr double kAbortSeconds = 1;
constexpr int kDrainMs = 5;

std::string name(std::uint64_t rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

Connections::Connections(std::uint64_t rank, std::vector<Socket> peers, double timeout_s,
                         std::shared_ptr<std::string> failure)
    : rank_(rank), peers_(peers.size()), timeout_s_(timeout_s), failure_(std::move(failure)) {
  for (std::size_t i = 0; i < peers.size(); ++i)
    peers_[i].socket = std::move(peers[i]);
}

// --- one exchange
// -------------------------------------------------------------------------------------------------------------

bool Connections::exchange() {
  if (!failure_->empty()) return false;
  for (Peer& p : peers_) {
    p.out_at = p.in_at = 0;
    if (!p.out.empty()) p.out_head = {kMagic, kData, p.sent++, p.out.size(), kCollective};
  }
  bool well = true;
  std::vector<std::size_t> ready;
  const auto busy = [](const Peer& p) { return p.gives() || p.receives(); };
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

void Connections::Peer::moved(std::size_t bytes) {
  if (posted.empty()) {
    out_at += bytes;
    return;
  }
  posted_at += bytes;
  if (posted_at < posted.size()) return;
  posted.clear();
  posted_at = 0;
}

// What was kept is there already; should it be of another size, exchange() finds that nothing fits.
void Connections::take(std::uint64_t from, std::span<std::byte> bytes, std::uint32_t tag) {
  Peer& p = peer(from);
  p.in = bytes;
  p.tag = tag;
  const auto found = std::find_if(p.kept.begin(), p.kept.end(), [&](const Kept& one) { return one.tag == tag; });
  if (found == p.kept.end() || p.keeps) return;
  if (found->bytes.size() != bytes.size()) {
    apart(static_cast<std::size_t>(from));
    return;
  }
  std::copy(found->bytes.begin(), found->bytes.end(), bytes.begin());
  p.kept.erase(found);
  p.in = {};
}

bool Connections::post(std::uint64_t to, std::span<const std::byte> bytes, std::uint32_t tag) {
  if (!failure_->empty()) return false;
  Peer& p = peer(to);
  const Header head{kMagic, kData, p.sent++, bytes.size(), tag};
  const auto start = std::as_bytes(std::span(&head, 1));
  p.posted.insert(p.posted.end(), start.begin(), start.end());
  p.posted.insert(p.posted.end(), bytes.begin(), bytes.end());
  return send_more(static_cast<std::size_t>(to));
}

// The ranks with which something may move now.
bool Connections::wait(std::vector<std::size_t>& ready) {
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

bool Connections::send_more(std::size_t rank) {
  Peer& p = peers_[rank];
  const std::optional<std::size_t> moved = p.socket.send_some(p.unsent());
  if (!moved) return ended(rank);
  p.moved(*moved);
  return true;
}

bool Connections::receive_more(std::size_t rank) {
  Peer& p = peers_[rank];
  const auto head = std::as_writable_bytes(std::span(&p.in_head, 1));
  const bool in_head = p.in_at < head.size();
  const std::optional<std::size_t> moved =
      p.socket.receive_some(in_head ? head.subspan(p.in_at) : p.body().subspan(p.in_at - head.size()));
  if (!moved) return ended(rank);
  p.in_at += *moved;
  if (in_head && p.in_at == head.size() && !check_head(rank)) return false;
  if (!p.keeps || p.in_at < head.size() + p.body().size()) return true;
  p.keeps = false;  // all of it is kept; what is waited for comes later
  p.in_at = 0;
  ++p.received;
  return true;
}

bool Connections::check_head(std::size_t rank) {
  Peer& p = peers_[rank];
  const Header& head = p.in_head;
  if (head.magic == kMagic && head.kind == kAbort && head.bytes <= kMostReason) return hear_reason(rank, head);
  if (head.magic != kMagic || head.number != p.received) return apart(rank);
  if (head.tag == p.tag && head.bytes == p.in.size()) return true;
  const bool waits = head.tag != p.tag && head.tag != kCollective && p.tag != kCollective && head.bytes <= kMostKept;
  if (!waits) return apart(rank);
  p.kept.push_back({head.tag, std::vector<std::byte>(static_cast<std::size_t>(head.bytes))});
  p.keeps = true;
  return true;
}

bool Connections::apart(std::size_t rank) {
  return lose(name(rank) + " is at another operator than " + name(rank_) + ": their traces differ");
}

bool Connections::hear_reason(std::size_t rank, const Header& head) {
  std::string why(static_cast<std::size_t>(std::min(head.bytes, kMostReason)), ' ');
  const bool heard = peers_[rank].socket.receive_all(std::as_writable_bytes(std::span(why)), in_seconds(kAbortSeconds));
  return lose(heard ? why : name(rank) + " gave up");
}

// A connection that breaks may have said why before it did.
bool Connections::ended(std::size_t rank) {
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

// A rank that is ahead may have sent of the next exchange already: that stays where it is.
bool Connections::listen() {
  for (std::size_t i = 0; failure_->empty() && i < peers_.size(); ++i) {
    if (!peers_[i].socket) continue;
    Header head;
    const std::optional<std::size_t> seen = peers_[i].socket.peek(std::as_writable_bytes(std::span(&head, 1)));
    if (!seen) {
      ended(i);
    } else if (*seen == sizeof head && head.kind == kAbort) {
      peers_[i].socket.receive_all(std::as_writable_bytes(std::span(&head, 1)), in_seconds(kAbortSeconds));
      hear_reason(i, head);
    }
  }
  return failure_->empty();
}

bool Connections::lose(const std::string& why) {
  abort(why);
  return false;
}

std::string Connections::silent_ranks() const {
  std::string ranks;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].gives() || peers_[i].receives()) ranks += (ranks.empty() ? "" : ", ") + std::to_string(i);
  }
  return "rank " + ranks;
}

bool Connections::end_message(Peer& p, Deadline deadline) {
  while (!p.posted.empty() || (p.out_at != 0 && p.gives())) {
    const std::span<const std::byte> rest = p.unsent();
    if (!p.socket.send_all(rest, deadline)) return false;
    p.moved(rest.size());
  }
  return true;
}

// A message that has begun is ended first: what follows it can then be understood.
void Connections::abort(const std::string& why) {
  if (!failure_->empty()) return;
  *failure_ = why;
  const Deadline deadline = in_seconds(kAbortSeconds);
  for (Peer& p : peers_) {
    if (!p.socket) continue;
    const Header head{kMagic, kAbort, p.sent, why.size(), kCollective};
    if (end_message(p, deadline) && p.socket.send_all(std::as_bytes(std::span(&head, 1)), deadline))
      p.socket.send_all(std::as_bytes(std::span(why)), deadline);
    shutdown(p.socket.descriptor(), SHUT_WR);
  }
}

// What was posted goes before the connections do. One that is closed with bytes unread is reset, and may take with it
// what was said last: read on to the end first.
Connections::~Connections() {
  if (failure_->empty()) {
    for (Peer& p : peers_)
      end_message(p, in_seconds(timeout_s_));
    return;
  }
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

}  // namespace ledger
