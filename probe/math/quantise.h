// quantise.h - the nearest entry of a code table.
#pragma once

#include "probe/math/host_device.h"

namespace ledger::math {

// Index of the value of `table` (ascending) nearest to x; of two equally near, the smaller: torch.argmin takes the
// first.
LEDGER_HOST_DEVICE inline unsigned nearest_code(const float* table, unsigned size, float x) {
  unsigned low = 0, high = size;  // the first value that is not below x lies in [low, high]
  while (low < high) {
    const unsigned middle = (low + high) / 2;
    if (table[middle] < x) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == 0) return 0;
  return low == size || x - table[low - 1] <= table[low] - x ? low - 1 : low;
}

}  // namespace ledger::math
