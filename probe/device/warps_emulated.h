// warps_emulated.h - warps.h as loops on this processor, and a watch over shared memory: what a GPU would leave to
// chance is a fault here, and the call fails with it.
//
// Layouts: PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type" and "ldmatrix".
#pragma once

#include <deque>
#include <type_traits>
#include <vector>

namespace ledger::LEDGER_DEVICE {

template <class T>
inline std::uint32_t pack(float low, float high) {
  T first, second;
  narrow(low, first);
  narrow(high, second);
  return first.bits | static_cast<std::uint32_t>(second.bits) << 16;
}

template <class T>
inline float unpack(std::uint32_t both, unsigned half) {
  return widen(T{static_cast<std::uint16_t>(half == 0 ? both : both >> 16)});
}

class Warps {
 public:
  explicit Warps(unsigned bytes) : memory_(bytes), words_(bytes / 4) {}

  // Of a new team: nothing is inherited.
  void begin() {
    std::fill(memory_.begin(), memory_.end(), std::byte{0xFF});
    std::fill(words_.begin(), words_.end(), Word{});
    now_ = 1;
  }
  void end() {
    for (const auto& group : groups_) {
      if (!group.empty()) fault_ = "a copy is on its way when its team ends";
    }
    if (!open_.empty()) fault_ = "a copy is in no group that was committed";
    arrive<0>();
  }
  const char* fault() const { return fault_; }

  template <class F>
  void lanes(F f) {
    for (unsigned lane = 0; lane < kThreads; ++lane)
      f(lane);
  }
  void barrier() { ++now_; }

  void copy(unsigned lane, unsigned to, const std::byte* from, bool there) {
    if (to % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) fault_ = "a copy is not aligned";
    write(lane, to, 16);
    for (unsigned i = 0; i < 4; ++i)
      words_[to / 4 + i].pending = true;
    open_.push_back({lane, to, there ? from : nullptr});
  }
  void commit() { groups_.push_back(std::move(open_)), open_.clear(); }
  template <unsigned kLeft>
  void arrive() {
    for (; groups_.size() > kLeft; groups_.pop_front()) {
      for (const Copy& copy : groups_.front())
        complete(copy);
    }
  }

  template <class V>
  V get(unsigned lane, unsigned from) {
    static_assert(sizeof(V) == 4);
    read(lane, from, 4);
    V value;
    memcpy(&value, &memory_[from], 4);
    return value;
  }
  template <class V>
  void put(unsigned lane, unsigned to, V value) {
    static_assert(sizeof(V) == 4);
    write(lane, to, 4);
    memcpy(&memory_[to], &value, 4);
  }

  template <bool kTransposed, std::size_t N, class Place>
  void load(PerLane<std::array<Fragment, N>>& to, unsigned k, Place place) {
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      std::uint16_t matrix[4][8][8];
      for (unsigned i = 0; i < kWarp; ++i) {
        const unsigned from = place(warp * kWarp + i);
        if (from % 16 != 0) fault_ = "a row of a matrix is not aligned";
        read(kThreads + warp, from, 16);
        memcpy(matrix[i / 8][i % 8], &memory_[from], 16);
      }
      for (unsigned i = 0; i < kWarp; i += 8)
        meet_all_banks([&](unsigned row) { return place(warp * kWarp + i + row); });
      for (unsigned l = 0; l < kWarp; ++l) {
        for (unsigned m = 0; m < 4; ++m) {
          const unsigned row = l / 4, column = l % 4 * 2;
          const std::uint32_t low = kTransposed ? matrix[m][column][row] : matrix[m][row][column];
          const std::uint32_t high = kTransposed ? matrix[m][column + 1][row] : matrix[m][row][column + 1];
          to[warp * kWarp + l][k].r[m] = low | high << 16;
        }
      }
    }
  }

  template <class T, std::size_t N, std::size_t K>
  void multiply(PerLane<std::array<Sums, N>>& sums, unsigned j, PerLane<std::array<Fragment, K>>& left, unsigned k,
                PerLane<std::array<Fragment, 1>>& right, unsigned half) {
    for (unsigned warp = 0; warp < kWarps; ++warp) {
      float a[16][16], b[16][8];
      for (unsigned l = 0; l < kWarp; ++l) {
        const unsigned lane = warp * kWarp + l, g = l / 4, t = l % 4;
        for (unsigned i = 0; i < 8; ++i)
          a[g + i / 2 % 2 * 8][2 * t + i % 2 + i / 4 * 8] = unpack<T>(left[lane][k].r[i / 2], i % 2);
        for (unsigned i = 0; i < 4; ++i)
          b[2 * t + i % 2 + i / 2 * 8][g] = unpack<T>(right[lane][0].r[half * 2 + i / 2], i % 2);
      }
      for (unsigned l = 0; l < kWarp; ++l) {
        for (unsigned i = 0; i < 4; ++i) {
          float& c = sums[warp * kWarp + l][j].v[i];
          for (unsigned depth = 0; depth < 16; ++depth)
            c += a[l / 4 + i / 2 * 8][depth] * b[depth][l % 4 * 2 + i % 2];
        }
      }
    }
  }

  template <std::size_t N, class Combine>
  void across_row(PerLane<std::array<float, N>>& values, Combine combine) {
    for (unsigned i = 0; i < N; ++i) {
      for (unsigned distance = 2; distance > 0; distance /= 2) {
        const auto before = values;
        for (unsigned lane = 0; lane < kThreads; ++lane)
          values[lane][i] = combine(before.values[lane][i], before.values[lane ^ distance][i]);
      }
    }
  }

  static void add(float* to, float value) { *to += value; }

 private:
  // Four bytes of shared memory: who last wrote and read them, between which barriers.
  struct Word {
    std::uint32_t written = 0, read = 0;
    std::uint16_t writer = 0, reader = 0;  // a lane, or kThreads and a warp's number
    bool pending = false;                  // a copy into it is on its way
  };
  struct Copy {
    unsigned lane, to;
    const std::byte* from;
  };
  static constexpr std::uint16_t kSeveral = 0xFFFF;

  void read(unsigned who, unsigned from, unsigned bytes) {
    for (unsigned i = from / 4; i < (from + bytes) / 4; ++i) {
      Word& word = words_.at(i);
      if (word.written == 0) fault_ = "shared memory is read that nobody has written";
      if (word.pending || (word.written == now_ && word.writer != who)) {
        fault_ = "shared memory is read without a barrier after it was written";
      }
      word.reader = static_cast<std::uint16_t>(word.read == now_ && word.reader != who ? kSeveral : who);
      word.read = now_;
    }
  }
  void write(unsigned who, unsigned to, unsigned bytes) {
    for (unsigned i = to / 4; i < (to + bytes) / 4; ++i) {
      Word& word = words_.at(i);
      const bool others_read = word.read == now_ && word.reader != who;
      if (word.pending || others_read || (word.written == now_ && word.writer != who)) {
        fault_ = "shared memory is written without a barrier after others used it";
      }
      word.written = now_;
      word.writer = static_cast<std::uint16_t>(who);
    }
  }
  void complete(const Copy& copy) {
    for (unsigned i = 0; i < 4; ++i) {
      words_[copy.to / 4 + i].pending = false;
      words_[copy.to / 4 + i].written = now_;
    }
    if (copy.from == nullptr) {
      memset(&memory_[copy.to], 0, 16);
    } else {
      memcpy(&memory_[copy.to], copy.from, 16);
    }
  }
  template <class Row>
  void meet_all_banks(Row row) {
    unsigned met = 0;
    for (unsigned i = 0; i < 8; ++i)
      met |= 1u << row(i) / 16 % 8;
    if (met != 0xFF) fault_ = "rows of a matrix share banks of shared memory";
  }

  std::vector<std::byte> memory_;
  std::vector<Word> words_;
  std::uint32_t now_ = 1;  // barriers so far
  std::vector<Copy> open_;
  std::deque<std::vector<Copy>> groups_;
  const char* fault_ = nullptr;
};

template <class Body>
void for_warps(Call& call, std::uint64_t count, const Body& body) {
  static_assert(Body::kBytes <= kMostShared);
  if (count == 0 || call.error != nullptr) return;
  Warps warps(Body::kBytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    warps.begin();
    body(warps, i);
    warps.end();
  }
  call.error = warps.fault();
  ++call.services.queue.launches;
  ++call.services.queue.tensor_core_launches;
}

}  // namespace ledger::LEDGER_DEVICE
