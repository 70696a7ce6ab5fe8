// forked_ranks.h - runs a function in a process for each rank, connected with each other, and collects what it returns.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "probe/ranks/host_communicator.h"
#include "probe/ranks/rendezvous.h"

namespace ledger::forked {

// What a rank's process left behind.
struct Ended {
  std::string said;
  int status = 0;  // as waitpid has it
};

// Below the range that the system takes for connections: a port that was just free would be taken again by anybody's.
// Each process begins elsewhere.
inline std::uint16_t free_port() {
  static std::uint32_t next = static_cast<std::uint32_t>(getpid()) * 97;
  for (;;) {
    const auto port = static_cast<std::uint16_t>(12000 + next++ % 20000);
    if (listen_at(port, true, 1).error.empty()) return port;
  }
}

inline RankPlace place(std::uint64_t rank, std::uint64_t world, std::uint16_t port) {
  RankPlace p;
  p.rank = rank;
  p.world = world;
  p.address = "127.0.0.1";
  p.port = port;
  return p;
}

inline void write_all(int descriptor, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(descriptor, text.data() + at, text.size() - at);
    if (written <= 0) return;
    at += static_cast<std::size_t>(written);
  }
}

inline std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t count = 0; (count = read(descriptor, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(count));
  return text;
}

// One process a rank; each says what `body` returns.
inline std::vector<Ended> in_processes(std::uint64_t world, const std::function<std::string(std::uint64_t)>& body) {
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    const pid_t child = fork();
    if (child == 0) {
      write_all(ends[1], body(rank));
      _exit(0);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    children.push_back(child);
  }
  std::vector<Ended> all(static_cast<std::size_t>(world));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].said = read_all(pipes[i]);
    close(pipes[i]);
    waitpid(children[i], &all[i].status, 0);
  }
  return all;
}

using RankBody = std::function<std::string(Communicator&)>;

// The same with the ranks connected; a meeting that failed is said in its place.
inline std::vector<Ended> as_ranks(std::uint64_t world, const RankBody& body, double timeout_s = 20) {
  const std::uint16_t port = free_port();
  return in_processes(world, [&](std::uint64_t rank) {
    Meeting meeting = meet(place(rank, world, port), {}, timeout_s);
    if (!meeting.error.empty()) return "no meeting: " + meeting.error;
    HostCommunicator ranks(rank, std::move(meeting.peers), timeout_s);
    return body(ranks);
  });
}

}  // namespace ledger::forked
