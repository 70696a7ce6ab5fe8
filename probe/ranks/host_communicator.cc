#include "probe/ranks/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "probe/ranks/reduce.h"

namespace ledger {
namespace {

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

std::vector<std::uint64_t> first_numbers(std::size_t count) {
  std::vector<std::uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  return numbers;
}

}  // namespace

HostCommunicator::HostCommunicator(std::uint64_t rank, std::vector<std::uint64_t> members,
                                   std::shared_ptr<std::string> failure, std::shared_ptr<Connections> connections)
    : Communicator(rank, members.size(), failure),
      members_(std::move(members)),
      failure_(std::move(failure)),
      connections_(std::move(connections)) {}

HostCommunicator::HostCommunicator(std::uint64_t rank, std::vector<Socket> peers, double timeout_s)
    : HostCommunicator(rank, first_numbers(peers.size()), std::make_shared<std::string>(), nullptr) {
  connections_ = std::make_shared<Connections>(rank, std::move(peers), timeout_s, failure_);
}

std::unique_ptr<Communicator> HostCommunicator::among(const std::vector<std::uint64_t>& members) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(members.size());
  for (const std::uint64_t member : members)
    numbers.push_back(number(member));
  const std::uint64_t place = place_among(members, rank());
  return std::unique_ptr<Communicator>(new HostCommunicator(place, std::move(numbers), failure_, connections_));
}

// --- collectives
// --------------------------------------------------------------------------------------------------------------

bool HostCommunicator::all_gather(const RankBuffer& whole) {
  for (std::uint64_t r = 0; r < world(); ++r) {
    if (r == rank()) continue;
    give(r, memory(slice(whole, cut_at(whole.count, rank(), world()), cut_at(whole.count, rank() + 1, world()))));
    take(r, memory(slice(whole, cut_at(whole.count, r, world()), cut_at(whole.count, r + 1, world()))));
  }
  return connections_->exchange();
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
  if (!connections_->exchange()) return false;
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
  return connections_->exchange();
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
  return connections_->exchange();
}

// Tag 0 of the connections is that of collectives.
bool HostCommunicator::send(const RankBuffer& buffer, std::uint64_t to, std::uint32_t tag) {
  return connections_->post(number(to), memory(buffer), tag + 1);
}

bool HostCommunicator::receive(const RankBuffer& buffer, std::uint64_t from, std::uint32_t tag) {
  connections_->take(number(from), memory(buffer), tag + 1);
  return connections_->exchange();
}

}  // namespace ledger
