#include "probe/ranks/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

namespace ledger {
namespace {

constexpr std::uint32_t kTextsMagic = 0x4D4C5231;  // "MLR1"
constexpr std::uint32_t kMostTextBytes = 4u << 20;
constexpr int kRetryMs = 30;

void prepare(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL, 0) | O_NONBLOCK);
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool wait_for(int descriptor, short events, Deadline deadline) {
  pollfd poller{descriptor, events, 0};
  while (true) {
    const int ready = poll(&poller, 1, milliseconds_left(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

std::optional<std::size_t> moved(ssize_t count) {
  if (count > 0) return static_cast<std::size_t>(count);
  const bool later = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return later ? std::optional<std::size_t>(0) : std::nullopt;
}

Socket connect_once(const addrinfo& address, Deadline deadline) {
  Socket socket(::socket(address.ai_family, address.ai_socktype, address.ai_protocol));
  if (!socket) return socket;
  prepare(socket.descriptor());
  if (connect(socket.descriptor(), address.ai_addr, address.ai_addrlen) != 0) {
    if (errno != EINPROGRESS || !wait_for(socket.descriptor(), POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return {};
  }
  return socket;
}

void append_number(std::vector<std::byte>& bytes, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8)
    bytes.push_back(static_cast<std::byte>(number >> shift & 0xFF));
}

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number |= static_cast<std::uint32_t>(bytes[at + i]) << (8 * i);
  return number;
}

}  // namespace

int milliseconds_left(Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

std::optional<std::size_t> Socket::send_some(std::span<const std::byte> bytes) const {
  return moved(::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

std::optional<std::size_t> Socket::receive_some(std::span<std::byte> bytes) const {
  return moved(::recv(descriptor_, bytes.data(), bytes.size(), 0));
}

std::optional<std::size_t> Socket::peek(std::span<std::byte> bytes) const {
  return moved(::recv(descriptor_, bytes.data(), bytes.size(), MSG_PEEK));
}

bool Socket::send_all(std::span<const std::byte> bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    if (!wait_for(descriptor_, POLLOUT, deadline)) return false;
    const std::optional<std::size_t> sent = send_some(bytes);
    if (!sent) return false;
    bytes = bytes.subspan(*sent);
  }
  return true;
}

bool Socket::receive_all(std::span<std::byte> bytes, Deadline deadline) const {
  while (!bytes.empty()) {
    if (!wait_for(descriptor_, POLLIN, deadline)) return false;
    const std::optional<std::size_t> received = receive_some(bytes);
    if (!received) return false;
    bytes = bytes.subspan(*received);
  }
  return true;
}

std::string Socket::peer_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (getpeername(descriptor_, generic, &size) != 0) return "";
  getnameinfo(generic, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return text.data();
}

Listener listen_at(std::uint16_t port, bool loopback, int backlog) {
  Listener listener;
  listener.socket = Socket(::socket(AF_INET, SOCK_STREAM, 0));
  const int descriptor = listener.socket.descriptor();
  prepare(descriptor);
  const int on = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(descriptor, generic, size) != 0 || listen(descriptor, backlog) != 0 ||
      getsockname(descriptor, generic, &size) != 0) {
    listener.error = "cannot listen at port " + std::to_string(port) + ": " + std::strerror(errno);
    return listener;
  }
  listener.port = ntohs(address.sin_port);
  return listener;
}

Socket accept_one(const Socket& listener, Deadline deadline) {
  if (!wait_for(listener.descriptor(), POLLIN, deadline)) return {};
  Socket socket(accept(listener.descriptor(), nullptr, nullptr));
  if (socket) prepare(socket.descriptor());
  return socket;
}

Socket connect_to(const std::string& address, std::uint16_t port, Deadline deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  while (true) {
    addrinfo* found = nullptr;
    if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) == 0) {
      const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
      for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
        if (Socket socket = connect_once(*one, deadline)) return socket;
      }
    }
    if (milliseconds_left(deadline) == 0) return {};
    poll(nullptr, 0, std::min(kRetryMs, milliseconds_left(deadline)));
  }
}

bool send_texts(const Socket& socket, const Texts& texts, Deadline deadline) {
  std::vector<std::byte> body;
  for (const std::string& text : texts) {
    append_number(body, static_cast<std::uint32_t>(text.size()));
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    body.insert(body.end(), begin, begin + text.size());
  }
  std::vector<std::byte> message;
  append_number(message, kTextsMagic);
  append_number(message, static_cast<std::uint32_t>(body.size()));
  message.insert(message.end(), body.begin(), body.end());
  return socket.send_all(message, deadline);
}

std::optional<Texts> receive_texts(const Socket& socket, Deadline deadline) {
  std::array<std::byte, 8> head{};
  if (!socket.receive_all(head, deadline) || number_at(head, 0) != kTextsMagic) return std::nullopt;
  const std::uint32_t size = number_at(head, 4);
  if (size > kMostTextBytes) return std::nullopt;
  std::vector<std::byte> body(size);
  if (!socket.receive_all(body, deadline)) return std::nullopt;
  Texts texts;
  for (std::size_t at = 0; at < body.size();) {
    if (body.size() - at < 4) return std::nullopt;
    const std::uint32_t length = number_at(body, at);
    at += 4;
    if (length > body.size() - at) return std::nullopt;
    texts.emplace_back(reinterpret_cast<const char*>(body.data()) + at, length);
    at += length;
  }
  return texts;
}

}  // namespace ledger
