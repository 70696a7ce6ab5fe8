// stand_in_peers.h - the ranks of a communicator of stand_in_nccl.cc, connected with each other by sockets of this
// machine.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "probe/cuda/nccl_api.h"

namespace ledger::stand_in {

using namespace ledger::cuda::nccl;

inline constexpr int kPollMs = 2;

struct Stopped {};  // thrown where the communicator is aborted while it waits

struct Frame {
  std::uint32_t kind = 0;  // 1: ready to receive; 2: data
  std::uint32_t bytes = 0;
};

class Peers {
 public:
  Peers(std::string id, int rank, int world, std::atomic<bool>& aborted)
      : id_(std::move(id)), rank_(rank), world_(world), aborted_(aborted), peers_(static_cast<std::size_t>(world)) {}
  ~Peers() {
    for (const Peer& peer : peers_) {
      if (peer.socket >= 0) close(peer.socket);
    }
    if (listener_ >= 0) close(listener_);
  }

  // Lower ranks listen, higher ones call and say who they are.
  void connect_all() {
    listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un own = address(rank_);
    bind(listener_, reinterpret_cast<const sockaddr*>(&own), sizeof own);
    listen(listener_, world_);
    for (int lower = 0; lower < rank_; ++lower) {
      const sockaddr_un there = address(lower);
      int caller = socket(AF_UNIX, SOCK_STREAM, 0);
      while (connect(caller, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0)
        rest();
      write_whole(caller, &rank_, sizeof rank_);
      peers_[static_cast<std::size_t>(lower)].socket = caller;
    }
    for (int waiting = world_ - 1 - rank_; waiting > 0; --waiting) {
      pollfd poller{listener_, POLLIN, 0};
      while (poll(&poller, 1, kPollMs) <= 0)
        check();
      const int called = accept(listener_, nullptr, nullptr);
      int who = 0;
      read_whole(called, &who, sizeof who);
      peers_[static_cast<std::size_t>(who)].socket = called;
    }
  }

  struct Transfer {
    int other = 0;
    char* data = nullptr;
    std::size_t bytes = 0;
    bool outgoing = false;
  };

  // All at once. What is sent leaves when the other one is ready to receive it, as large messages do.
  void exchange(const std::vector<Transfer>& transfers) {
    std::deque<Transfer> sends, receives;
    for (const Transfer& one : transfers) {
      if (one.outgoing) {
        sends.push_back(one);
      } else {
        receives.push_back(one);
        if (one.other != rank_) say(one.other, {1, 0}, nullptr);
      }
    }
    while (!sends.empty() || !receives.empty()) {
      bool moved = false;
      for (auto one = sends.begin(); one != sends.end();) {
        Peer& peer = peers_[static_cast<std::size_t>(one->other)];
        if (one->other != rank_ && peer.ready == 0) {
          ++one;
          continue;
        }
        if (one->other == rank_) {
          own_.push_back(std::string(one->data, one->bytes));
        } else {
          --peer.ready;
          say(one->other, {2, static_cast<std::uint32_t>(one->bytes)}, one->data);
        }
        one = sends.erase(one);
        moved = true;
      }
      for (auto one = receives.begin(); one != receives.end();) {
        std::deque<std::string>& data = one->other == rank_ ? own_ : peers_[static_cast<std::size_t>(one->other)].data;
        if (data.empty()) {
          ++one;
          continue;
        }
        if (data.front().size() != one->bytes) throw kInvalidUsage;
        std::memcpy(one->data, data.front().data(), one->bytes);
        data.pop_front();
        one = receives.erase(one);
        moved = true;
      }
      if (!moved) listen_once();
    }
    // What was written must have left.
    while (std::any_of(peers_.begin(), peers_.end(), [](const Peer& p) { return !p.out.empty(); }))
      listen_once();
  }

 private:
  struct Peer {
    int socket = -1;
    int ready = 0;  // how many receives it has begun that nothing was sent for
    std::deque<std::string> data;
    std::string in, out;
    bool gone = false;
  };

  sockaddr_un address(int rank) const {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const std::string text = id_ + "." + std::to_string(rank);
    std::memcpy(name.sun_path + 1, text.data(), std::min(text.size(), sizeof name.sun_path - 1));
    return name;
  }

  void check() const {
    if (aborted_) throw Stopped();
  }
  void rest() const {
    poll(nullptr, 0, kPollMs);
    check();
  }

  void say(int to, Frame frame, const char* data) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    peer.out.append(reinterpret_cast<const char*>(&frame), sizeof frame);
    if (data != nullptr) peer.out.append(data, frame.bytes);
  }

  // Moves what can be moved. A peer that is gone is one that never answers, as over NVLink.
  void listen_once() {
    check();
    std::vector<pollfd> pollers;
    std::vector<Peer*> polled;
    for (Peer& peer : peers_) {
      if (peer.socket < 0 || peer.gone) continue;
      pollers.push_back({peer.socket, static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
      polled.push_back(&peer);
    }
    poll(pollers.data(), pollers.size(), kPollMs);
    for (std::size_t i = 0; i < pollers.size(); ++i) {
      if ((pollers[i].revents & POLLOUT) != 0) write_some(*polled[i]);
      if ((pollers[i].revents & (POLLIN | POLLHUP)) != 0) read_some(*polled[i]);
    }
  }

  static void write_some(Peer& peer) {
    const ssize_t sent = send(peer.socket, peer.out.data(), peer.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) peer.out.erase(0, static_cast<std::size_t>(sent));
  }

  static void read_some(Peer& peer) {
    char buffer[1 << 16];
    const ssize_t got = recv(peer.socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got == 0) peer.gone = true;
    if (got > 0) peer.in.append(buffer, static_cast<std::size_t>(got));
    while (peer.in.size() >= sizeof(Frame)) {
      Frame frame;
      std::memcpy(&frame, peer.in.data(), sizeof frame);
      if (peer.in.size() < sizeof frame + frame.bytes) return;
      if (frame.kind == 1) ++peer.ready;
      if (frame.kind == 2) peer.data.push_back(peer.in.substr(sizeof frame, frame.bytes));
      peer.in.erase(0, sizeof frame + frame.bytes);
    }
  }

  void write_whole(int to, const void* data, std::size_t bytes) const {
    if (send(to, data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) throw kSystemError;
  }
  void read_whole(int from, void* data, std::size_t bytes) const {
    pollfd poller{from, POLLIN, 0};
    while (poll(&poller, 1, kPollMs) <= 0)
      check();
    if (recv(from, data, bytes, MSG_WAITALL) != static_cast<ssize_t>(bytes)) throw kSystemError;
  }

  std::string id_;
  int rank_, world_;
  std::atomic<bool>& aborted_;
  std::vector<Peer> peers_;
  std::deque<std::string> own_;
  int listener_ = -1;
};

}  // namespace ledger::stand_in
