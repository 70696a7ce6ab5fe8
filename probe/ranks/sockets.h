// sockets.h - TCP connections that never wait for ever: each call has a deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ledger {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline Deadline in_seconds(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}
int milliseconds_left(Deadline deadline);  // for poll(): at least 0

// A socket in non-blocking mode, closed with its owner.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  void close();

  // What moved without waiting, 0 when nothing can now; nothing when the other end is gone.
  std::optional<std::size_t> send_some(std::span<const std::byte> bytes) const;
  std::optional<std::size_t> receive_some(std::span<std::byte> bytes) const;
  std::optional<std::size_t> peek(std::span<std::byte> bytes) const;  // the same, and they are received again

  // All of it before the deadline.
  bool send_all(std::span<const std::byte> bytes, Deadline deadline) const;
  bool receive_all(std::span<std::byte> bytes, Deadline deadline) const;

  std::string peer_address() const;  // numeric

 private:
  int descriptor_ = -1;
};

// Listens at `port` (0: any that is free), on this machine's own address only when `loopback`.
struct Listener {
  Socket socket;
  std::uint16_t port = 0;
  std::string error;
};
Listener listen_at(std::uint16_t port, bool loopback, int backlog);
Socket accept_one(const Socket& listener, Deadline deadline);  // empty when none came

// Tries again until somebody listens there; empty when nobody did in time.
Socket connect_to(const std::string& address, std::uint16_t port, Deadline deadline);

// A few short texts as one message.
using Texts = std::vector<std::string>;
bool send_texts(const Socket& socket, const Texts& texts, Deadline deadline);
std::optional<Texts> receive_texts(const Socket& socket, Deadline deadline);  // nothing: gone, late, or not ours

}  // namespace ledger
