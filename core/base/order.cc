#include "core/base/order.h"

#include <algorithm>
#include <numeric>

namespace ledger {

// Merges runs of 1, 2, 4, ... indices.
std::vector<std::uint32_t> stable_order(std::size_t count, const void* context,
                                        bool (*before)(const void* context, std::uint32_t a, std::uint32_t b)) {
  std::vector<std::uint32_t> order(count), merged(count);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  for (std::size_t width = 1; width < count; width *= 2) {
    for (std::size_t start = 0; start < count; start += 2 * width) {
      const std::size_t middle = std::min(start + width, count), end = std::min(middle + width, count);
      std::size_t left = start, right = middle;
      for (std::size_t i = start; i < end; ++i) {
        const bool from_right = left == middle || (right < end && before(context, order[right], order[left]));
        merged[i] = order[from_right ? right++ : left++];
      }
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace ledger
