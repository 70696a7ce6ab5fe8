// flash.h - attention on tensor cores: which calls it takes, and what forward and backward share.
//
// FlashAttention-2 (Dao 2023) in mma.m16n8k16: 16-bit elements, fp32 sums, heads of 64, 96 or 128, causal or not,
// grouped keys. Everything else is left to attention.cc and attention_backward.cc.
#pragma once

#include <cmath>
#include <numbers>

#include "probe/device/attention_head.h"
#include "probe/device/warps.h"

namespace ledger::LEDGER_DEVICE {

// True: the call was computed (or has failed). Its operands go together, as attention_refusal() has it.
bool flash_forward(Call& call);
bool flash_backward(Call& call);

// Whether tensor cores take all of these operands, [b,n,s,d] in 16 bits: dense heads of one width, rows of whole pieces
// of 16 bytes.
bool suits_tensor_cores(const Call& call, std::initializer_list<const Operand*> operands);

inline constexpr float kLog2e = std::numbers::log2e_v<float>;  // scores are powers of two on the way
static_assert(kTeamRows == kTile, "Heads counts in tiles of a team's rows");

LEDGER_DEVICE_ONLY inline GlobalRows head_rows(const Operand& view, std::uint64_t batch, std::uint64_t head) {
  constexpr std::int64_t kElement = 2;
  return {view.data +
              (static_cast<std::int64_t>(batch) * view.strides[0] + static_cast<std::int64_t>(head) * view.strides[1]) *
                  kElement,
          view.strides[2] * kElement, view.sizes[2]};
}

// One fp32 number for each row of each head.
struct RowNumbers {
  std::byte* data;
  std::int64_t batch, head, row;  // bytes from one to the next

  explicit RowNumbers(const Operand& view)
      : data(view.data), batch(view.byte_stride(0)), head(view.byte_stride(1)), row(view.byte_stride(2)) {}
  LEDGER_DEVICE_ONLY float& at(std::uint64_t b, std::uint64_t h, std::uint64_t r) const {
    return *reinterpret_cast<float*>(data + static_cast<std::int64_t>(b) * batch + static_cast<std::int64_t>(h) * head +
                                     static_cast<std::int64_t>(r) * row);
  }
};

// launch(T{}, the width as a constant) for the element type and width of heads like `view`.
template <class Launch>
inline void by_head(const Operand& view, Launch launch) {
  const auto of_type = [&]<class T>(T type) {
    if (view.sizes[3] == 64) return launch(type, std::integral_constant<unsigned, 64>());
    if (view.sizes[3] == 96) return launch(type, std::integral_constant<unsigned, 96>());
    launch(type, std::integral_constant<unsigned, 128>());
  };
  view.dtype == DType::bf16 ? of_type(Bf16{}) : of_type(Fp16{});
}

}  // namespace ledger::LEDGER_DEVICE
