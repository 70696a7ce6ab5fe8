#include "core/models/own_rows.h"

namespace ledger {

Tensor as_row(const Tensor& x) {
  const Shape row{{x.shape().numel(), Sym::none}};
  return x.tape().view_of(x, row, {1}, 0);
}

Tensor as_column(const Tensor& x) {
  const Shape column{{x.shape().numel(), Sym::none}, kOne};
  return x.tape().view_of(x, column, {1, 1}, 0);
}

OwnRows own_rows(const Tensor& ids, TensorSeat seat, std::uint64_t part) {
  const std::uint64_t first = times(seat.rank, part);
  OwnRows own;
  {
    const Tensor before = less(ids, first);
    const Tensor behind = at_least(ids, plus(first, part));
    own.others = logical_or(before, behind);
  }
  {
    const Tensor copy = clone(ids);
    own.places = add(copy, -static_cast<double>(first));
  }
  masked_fill_inplace(own.places, own.others, 0);
  return own;
}

}  // namespace ledger
