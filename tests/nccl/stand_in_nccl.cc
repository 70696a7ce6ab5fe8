// stand_in_nccl.cc - a libnccl.so.2 for tests: the functions that probe calls, between processes of one machine, on
// memory of the emulated device. It keeps to what is awkward about the real one: no call waits (one that began is ended
// by a thread), operators of a communicator run in order, a send ends when it is received, a lost peer is waited for,
// and only aborting ends that.
//
// STAND_IN_NCCL, "what=value" separated by spaces, makes it do wrong on rank `rank` (of a communicator; without: on
// all):
//   version=21003         is of this version
//   fail=init|run         refuses to make a communicator, or its collectives
//   hang=init|run         never ends one
//   async=run             tells of an error afterwards
//   full=init|run         finds no memory on the device for a communicator, or for its connections
//   from=N                ... from the Nth collective on, counted from 1
//   stubborn=1            does not give up when it is aborted
// Built with LACKS_GROUP_END it has no ncclGroupEnd.
#include <dlfcn.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/nccl/emulated_stream.h"
#include "tests/nccl/stand_in_numbers.h"
#include "tests/nccl/stand_in_peers.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using namespace ledger;
using namespace ledger::stand_in;

constexpr std::uint64_t kInitBytes = 24u << 20, kConnectBytes = 6u << 20;

std::string told(const std::string& what) {
  const char* const all = std::getenv("STAND_IN_NCCL");
  const std::string text = " " + std::string(all == nullptr ? "" : all) + " ";
  const std::size_t at = text.find(" " + what + "=");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + what.size() + 2;
  return text.substr(begin, text.find(' ', begin) - begin);
}

bool does(const std::string& wrong, const std::string& when, int rank) {
  const std::string who = told("rank");
  return told(wrong) == when && (who.empty() || who == std::to_string(rank));
}

// nullptr in a process without an emulated device.
emulated::Stream* device_of_this_process() {
  const auto find = reinterpret_cast<emulated::Stream* (*)()>(dlsym(RTLD_DEFAULT, "emulated_stream"));
  return find == nullptr ? nullptr : find();
}

std::string last_error;

// As a job finds out, when its call has long returned.
void lack_memory(const char* words) {
  last_error = words;
  throw kUnhandledCudaError;
}

class Communicator {
 public:
  Communicator(const UniqueId& id, int rank, int world)
      : rank_(rank), world_(world), peers_(std::string(id.internal), rank, world, aborted_) {
    take(kInitBytes);
    jobs_.push_back([this] {
      if (does("hang", "init", rank_)) hang();
      if (does("full", "init", rank_)) lack_memory("Failed to CUDA calloc 4194304 bytes");
      peers_.connect_all();
    });
    thread_ = std::thread([this] { work(); });
  }
  ~Communicator() {
    {
      const std::scoped_lock lock(mutex_);
      aborted_ = true;
    }
    changed_.notify_all();
    thread_.join();
    if (stream_ != nullptr) stream_->taken -= taken_;
  }

  int rank() const { return rank_; }
  int world() const { return world_; }

  Result state() {
    const std::scoped_lock lock(mutex_);
    return state_ != kSuccess ? state_ : busy_ || !made_ ? kInProgress : kSuccess;
  }

  using Job = std::function<void(Peers&)>;
  void queue(const Job& job, Stream stream, const char* kind) {
    auto* const where = static_cast<emulated::Stream*>(stream);
    ++collectives_;
    const std::string from = told("from");
    const bool due = from.empty() || collectives_ >= std::atoi(from.c_str());
    ++where->running;
    const std::scoped_lock lock(mutex_);
    if (kinds_[kind]++ == 0) take(kConnectBytes);
    jobs_.push_back([this, job, where, due] {
      struct Over {
        emulated::Stream* where;
        ~Over() { --where->running; }
      } over{where};
      if (due && does("hang", "run", rank_)) hang();
      if (due && does("full", "run", rank_)) lack_memory("Cuda failure 2 'out of memory'");
      job(peers_);
      if (due && does("async", "run", rank_)) throw kRemoteError;
    });
    changed_.notify_all();
  }
  bool refuses() const {
    const std::string from = told("from");
    return does("fail", "run", rank_) && (from.empty() || collectives_ + 1 >= std::atoi(from.c_str()));
  }
  void give_up() { aborted_ = true; }

 private:
  void take(std::uint64_t bytes) {
    if (stream_ == nullptr) return;
    stream_->taken += bytes;
    taken_ += bytes;
  }

  void hang() const {
    while (!aborted_)
      poll(nullptr, 0, kPollMs);
    throw Stopped();
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      busy_ = false;
      changed_.wait(lock, [this] { return !jobs_.empty() || aborted_; });
      if (jobs_.empty()) return;
      busy_ = true;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      Result wrong = kSuccess;
      try {
        job();
      } catch (const Result& what) {
        wrong = what;
      } catch (const Stopped&) {
        wrong = kInternalError;
      }
      lock.lock();
      made_ = true;
      if (wrong != kSuccess) state_ = wrong;
    }
  }

  int rank_, world_;
  std::atomic<bool> aborted_{false};
  Peers peers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::map<std::string, int> kinds_;
  bool busy_ = true, made_ = false;
  Result state_ = kSuccess;
  int collectives_ = 0;
  std::uint64_t taken_ = 0;
  emulated::Stream* const stream_ = device_of_this_process();
  std::thread thread_;
};

Communicator& communicator(Comm comm) {
  return *static_cast<Communicator*>(comm);
}

Result refuse(const char* why) {
  last_error = why;
  return kSystemError;
}

// Of everybody to everybody: what each collective makes its result of.
std::vector<std::string> gathered(Peers& peers, int rank, int world, const char* data, std::size_t bytes) {
  std::vector<std::string> parts(static_cast<std::size_t>(world), std::string(bytes, '\0'));
  std::string own(data, bytes);
  std::vector<Peers::Transfer> transfers;
  for (int other = 0; other < world; ++other) {
    if (other == rank) continue;
    transfers.push_back({other, own.data(), bytes, true});
    transfers.push_back({other, parts[static_cast<std::size_t>(other)].data(), bytes, false});
  }
  peers.exchange(transfers);
  parts[static_cast<std::size_t>(rank)] = own;
  return parts;
}

template <class Finish>
Result collective(Comm comm, Stream stream, const void* in, std::size_t bytes, const char* kind, const Finish& finish) {
  Communicator& c = communicator(comm);
  if (c.refuses()) return refuse("the cable is out");
  const int rank = c.rank(), world = c.world();
  const auto* const data = static_cast<const char*>(in);
  c.queue([=](Peers& peers) { finish(gathered(peers, rank, world, data, bytes)); }, stream, kind);
  return kInProgress;
}

// Sends and receives of a group.
thread_local int depth = 0;
struct Grouped {
  Comm comm = nullptr;
  Stream stream = nullptr;
  std::vector<Peers::Transfer> transfers;
};
thread_local Grouped grouped;

Result close_group() {
  if (grouped.transfers.empty()) return kSuccess;
  Communicator& c = communicator(grouped.comm);
  if (c.refuses()) return refuse("the cable is out");
  const std::vector<Peers::Transfer> transfers = grouped.transfers;
  c.queue([transfers](Peers& peers) { peers.exchange(transfers); }, grouped.stream, "messages");
  grouped = {};
  return kInProgress;
}

Result transfer(Comm comm, Stream stream, const Peers::Transfer& one) {
  grouped.comm = comm;
  grouped.stream = stream;
  grouped.transfers.push_back(one);
  return depth > 0 ? kSuccess : close_group();
}

}  // namespace

EXPORTED Result ncclGetVersion(int* version) {
  const std::string other = told("version");
  *version = other.empty() ? 22809 : std::atoi(other.c_str());
  return kSuccess;
}

EXPORTED Result ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "stand-in-nccl-%d-%u-%u", getpid(), random(), random());
  return kSuccess;
}

EXPORTED Result ncclCommInitRankConfig(Comm* comm, int world, UniqueId id, int rank, Config* config) {
  if (config->magic != 0xcafebeef || config->size < sizeof(Config) || config->blocking != 0) return kInvalidArgument;
  if (does("fail", "init", rank)) return refuse("no network interface is up");
  *comm = new Communicator(id, rank, world);
  return kInProgress;
}

EXPORTED Result ncclCommFinalize(Comm) {
  return kSuccess;
}

EXPORTED Result ncclCommDestroy(Comm comm) {
  delete static_cast<Communicator*>(comm);
  return kSuccess;
}

EXPORTED Result ncclCommAbort(Comm comm) {
  while (told("stubborn") == "1")
    poll(nullptr, 0, kPollMs);
  communicator(comm).give_up();
  delete static_cast<Communicator*>(comm);
  return kSuccess;
}

EXPORTED Result ncclCommGetAsyncError(Comm comm, Result* state) {
  *state = communicator(comm).state();
  return kSuccess;
}

EXPORTED const char* ncclGetErrorString(Result result) {
  switch (result) {
    case kUnhandledCudaError:
      return "unhandled cuda error";
    case kSystemError:
      return "unhandled system error";
    case kRemoteError:
      return "remote process error";
    default:
      return "error";
  }
}

EXPORTED const char* ncclGetLastError(Comm) {
  return last_error.c_str();
}

EXPORTED Result ncclAllReduce(const void* in, void* out, std::size_t count, DataType type, RedOp op, Comm comm,
                              Stream stream) {
  return collective(comm, stream, in, count * size_of(type), "all_reduce", [=](const std::vector<std::string>& parts) {
    reduce(parts, static_cast<char*>(out), count, type, op);
  });
}

EXPORTED Result ncclReduceScatter(const void* in, void* out, std::size_t count, DataType type, RedOp op, Comm comm,
                                  Stream stream) {
  const std::size_t part = count * size_of(type);
  const auto rank = static_cast<std::size_t>(communicator(comm).rank());
  const auto world = static_cast<std::size_t>(communicator(comm).world());
  return collective(comm, stream, in, part * world, "reduce_scatter", [=](std::vector<std::string> parts) {
    for (std::string& one : parts)
      one = one.substr(part * rank, part);
    reduce(parts, static_cast<char*>(out), count, type, op);
  });
}

EXPORTED Result ncclAllGather(const void* in, void* out, std::size_t count, DataType type, Comm comm, Stream stream) {
  const std::size_t part = count * size_of(type);
  return collective(comm, stream, in, part, "all_gather", [=](const std::vector<std::string>& parts) {
    for (std::size_t r = 0; r < parts.size(); ++r)
      std::memcpy(static_cast<char*>(out) + part * r, parts[r].data(), part);
  });
}

EXPORTED Result ncclBroadcast(const void* in, void* out, std::size_t count, DataType type, int root, Comm comm,
                              Stream stream) {
  const std::size_t bytes = count * size_of(type);
  return collective(comm, stream, in, bytes, "broadcast", [=](const std::vector<std::string>& parts) {
    std::memcpy(out, parts[static_cast<std::size_t>(root)].data(), bytes);
  });
}

EXPORTED Result ncclSend(const void* in, std::size_t count, DataType type, int other, Comm comm, Stream stream) {
  auto* const data = const_cast<char*>(static_cast<const char*>(in));
  return transfer(comm, stream, {other, data, count * size_of(type), true});
}

EXPORTED Result ncclRecv(void* out, std::size_t count, DataType type, int other, Comm comm, Stream stream) {
  return transfer(comm, stream, {other, static_cast<char*>(out), count * size_of(type), false});
}

EXPORTED Result ncclGroupStart() {
  ++depth;
  return kSuccess;
}

#ifndef LACKS_GROUP_END
EXPORTED Result ncclGroupEnd() {
  return --depth == 0 ? close_group() : kSuccess;
}
#endif
