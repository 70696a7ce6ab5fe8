#include "core/models/ring_exchange.h"

#include <utility>

namespace ledger::ring {

namespace {

// Dense strides of [b, n, s, d] in the order in which `like` lies: sequences first, or tokens.
Strides laid_as(const Tensor& like, const Shape& shape) {
  const auto size = [&](std::size_t i) { return static_cast<std::int64_t>(shape.sizes[i]); };
  const Strides& order = like.impl()->strides;
  const std::int64_t token = size(1) * size(3);
  if (order[0] >= order[2]) return {size(2) * token, size(3), token, 1};
  return {token, size(3), size(0) * token, 1};
}

Tensor dense(OpKind op, const Tensor& like, const Shape& shape) {
  const Strides strides = laid_as(like, shape);
  return like.tape().empty(op, shape, like.dtype(), &strides);
}

}  // namespace

// --- heads for tokens (flash_attn_a2a_communicate)
// ---------------------------------------------------------------------

// Parts of heads [parts, b, n / parts, s, d], each dense as `like` is.
Tensor new_parts(OpKind op, const Tensor& like, std::uint64_t parts, const Shape& part) {
  const Strides inner = laid_as(like, part);
  Shape shape{{parts, Sym::none}};
  Strides strides{static_cast<std::int64_t>(part.numel())};
  for (std::size_t i = 0; i < 4; ++i) {
    shape.push(part[i]);
    strides[i + 1] = inner[i];
  }
  return like.tape().empty(op, shape, like.dtype(), &strides);
}

Tensor part_at(const Tensor& parts, std::uint64_t number) {
  Shape shape;
  Strides strides{};
  for (std::size_t i = 0; i < 4; ++i) {
    shape.push(parts.shape()[i + 1]);
    strides[i] = parts.impl()->strides[i + 1];
  }
  return parts.tape().view_of(parts, shape, strides,
                              times(number, static_cast<std::uint64_t>(parts.impl()->strides[0])));
}

namespace {

// Heads of part `number` of `parts`, in place.
Tensor heads_at(const Tensor& x, std::uint64_t number, std::uint64_t parts) {
  Shape shape = x.shape();
  const std::uint64_t heads = x.dim(1).size / parts;
  shape.set(1, {heads, Sym::none});
  const Strides& strides = x.impl()->strides;
  return x.tape().view_of(x, shape, strides, times(times(number, heads), static_cast<std::uint64_t>(strides[1])));
}

// Of the tokens of all that exchange: the first half of rank `number`, or (1) its second.
Tensor tokens_at(const Tensor& x, std::uint64_t number, std::uint64_t parts, std::uint64_t which) {
  const std::uint64_t length = x.dim(2).size / (2 * parts);
  return tokens(x, times(which == 0 ? number : 2 * parts - 1 - number, length), length);
}

// Each rank's heads of this one's tokens, ready to go.
Tensor by_heads(const Tensor& x, std::uint64_t parts) {
  Shape part = x.shape();
  part.set(1, {x.dim(1).size / parts, Sym::none});
  Tensor result = new_parts(OpKind::clone, x, parts, part);
  for (std::uint64_t r = 0; r < parts; ++r)
    copy_into(part_at(result, r), heads_at(x, r, parts));
  return result;
}

}  // namespace

Tensor by_tokens(const Tensor& x, std::uint64_t parts) {
  Shape part = x.shape();
  part.set(2, {x.dim(2).size / parts, Sym::none});
  Tensor result = new_parts(OpKind::index_rows, x, parts, part);
  for (std::uint64_t r = 0; r < parts; ++r) {
    const Tensor to = part_at(result, r);
    for (const std::uint64_t which : {0u, 1u})
      copy_into(half(to, which), tokens_at(x, r, parts, which));
  }
  return result;
}

// What came from all ranks, put together.
Tensor whole_tokens(const Tensor& parts, std::uint64_t count) {
  const Tensor first = part_at(parts, 0);
  Shape shape = first.shape();
  shape.set(2, {times(first.dim(2).size, count), Sym::none});
  Tensor result = dense(OpKind::index_rows, first, shape);
  for (std::uint64_t r = 0; r < count; ++r) {
    const Tensor from = part_at(parts, r);
    for (const std::uint64_t which : {0u, 1u})
      copy_into(tokens_at(result, r, count, which), half(from, which));
  }
  return result;
}

namespace {

Tensor whole_heads(const Tensor& parts, std::uint64_t count) {
  const Tensor first = part_at(parts, 0);
  Shape shape = first.shape();
  shape.set(1, {times(first.dim(1).size, count), Sym::none});
  Tensor result = dense(OpKind::clone, first, shape);
  for (std::uint64_t r = 0; r < count; ++r)
    copy_into(heads_at(result, r, count), part_at(parts, r));
  return result;
}

}  // namespace

Tensor flat(const Tensor& dense_one) {
  return dense_one.tape().view_of(dense_one, {{dense_one.shape().numel(), Sym::none}}, {1}, 0);
}

std::vector<Tensor> exchanged(const std::vector<Tensor>& tensors, std::uint64_t parts, bool before) {
  Tape& tape = tensors[0].tape();
  const Tape::Among ranks(tape, RankGroup::exchange);
  const std::size_t count = tensors.size();
  std::vector<Tensor> sent(count), arrived(count);
  const auto prepare = [&](std::size_t i) {
    if (i < count) sent[i] = before ? by_heads(tensors[i], parts) : by_tokens(tensors[i], parts);
  };
  for (std::size_t i = 0; i < count + 2; ++i) {
    if (i > 0 && i <= count) {
      const Tensor& out = sent[i - 1];
      arrived[i - 1] = tape.empty(OpKind::all_to_all, out.shape(), out.dtype(), &out.impl()->strides);
      const Tensor from = flat(out), to = flat(arrived[i - 1]);
      tape.run(OpKind::all_to_all, {&from}, {&to});
    }
    if (!before) prepare(i);
    if (i > 1) arrived[i - 2] = before ? whole_tokens(arrived[i - 2], parts) : whole_heads(arrived[i - 2], parts);
    if (before) prepare(i);
  }
  return arrived;
}

}  // namespace ledger::ring
