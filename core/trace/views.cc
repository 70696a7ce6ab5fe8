// views.cc - operators that only look at memory differently.

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

std::size_t index_of(const Tensor& x, int dim) {
  return static_cast<std::size_t>(dim < 0 ? dim + x.rank() : dim);
}

Tensor viewed(const Tensor& x, const Shape& shape, const Strides& strides, std::uint64_t offset, BackwardRule rule,
              Attr attr = {}) {
  Tape& tape = x.tape();
  Node* node = tape.node(rule, {&x});
  Tensor result = tape.view_of(x, shape, strides, offset);
  if (node != nullptr) node->attr = attr;
  tape.attach(node, result);
  return result;
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  const auto strides = view_strides(x, shape);
  if (strides) return viewed(x, shape, *strides, 0, backward::view);
  return viewed(contiguous(x), shape, contiguous_strides(shape), 0, backward::view);
}

Tensor view(const Tensor& x, const Shape& shape) {
  return reshape(x, shape);
}

Tensor transpose(const Tensor& x, int a, int b) {
  const std::size_t i = index_of(x, a), j = index_of(x, b);
  Shape shape = x.shape();
  Strides strides = x.impl()->strides;
  std::swap(shape.sizes[i], shape.sizes[j]);
  std::swap(shape.syms[i], shape.syms[j]);
  std::swap(strides[i], strides[j]);
  return viewed(x, shape, strides, 0, backward::transpose,
                {0, {static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)}});
}

Tensor slice(const Tensor& x, int dim, std::uint64_t start, Dim length) {
  const std::size_t i = index_of(x, dim);
  Shape shape = x.shape();
  shape.set(i, length);
  const Strides& strides = x.impl()->strides;
  return viewed(x, shape, strides, start * static_cast<std::uint64_t>(strides[i]), backward::slice,
                {0, {static_cast<std::int64_t>(i), static_cast<std::int64_t>(start)}});
}

Tensor every_other(const Tensor& x, std::uint64_t start, Dim length) {
  Shape shape = x.shape();
  shape.set_last(length);
  Strides strides = x.impl()->strides;
  const std::size_t last = x.shape().rank - 1u;
  const std::uint64_t offset = start * static_cast<std::uint64_t>(strides[last]);
  strides[last] *= 2;
  return viewed(x, shape, strides, offset, backward::every_other, {0, {static_cast<std::int64_t>(start), 0}});
}

Tensor unsqueeze(const Tensor& x, int dim) {
  const std::size_t i = static_cast<std::size_t>(dim < 0 ? dim + x.rank() + 1 : dim);
  Shape shape;
  Strides strides{};
  for (std::size_t to = 0, from = 0; to <= x.shape().rank; ++to) {
    if (to == i) {
      strides[to] =
          from < x.shape().rank ? x.impl()->strides[from] * static_cast<std::int64_t>(x.shape()[from].size) : 1;
      shape.push({1, Sym::none});
    } else {
      strides[to] = x.impl()->strides[from];
      shape.push(x.shape()[from++]);
    }
  }
  return viewed(x, shape, strides, 0, backward::view);
}

Tensor expand(const Tensor& x, const Shape& shape) {
  Strides strides{};
  const std::size_t added = static_cast<std::size_t>(shape.rank - x.shape().rank);
  for (std::size_t i = 0; i < x.shape().rank; ++i) {
    const bool same = x.shape()[i].size == shape[i + added].size;
    strides[i + added] = same ? x.impl()->strides[i] : 0;
  }
  return viewed(x, shape, strides, 0, backward::pass);  // the engine sums the gradient back to x's shape
}

Tensor alias(const Tensor& x) {
  return viewed(x, x.shape(), x.impl()->strides, 0, backward::pass);
}

namespace {

Parts split(const Tensor& x, int dim, std::span<const Dim> lengths) {
  Tape& tape = x.tape();
  const std::size_t i = index_of(x, dim);
  Node* node = tape.node(backward::split, {&x});
  if (node != nullptr) node->attr.i = {static_cast<std::int64_t>(i), static_cast<std::int64_t>(lengths.size())};
  Shape shape = x.shape();
  Parts parts;
  std::uint64_t start = 0;
  for (std::size_t part = 0; part < lengths.size(); ++part) {
    shape.set(i, lengths[part]);
    parts[part] = tape.view_of(x, shape, x.impl()->strides, start * static_cast<std::uint64_t>(x.impl()->strides[i]));
    tape.attach(node, parts[part]);
    start += lengths[part].size;
  }
  return parts;
}

}  // namespace

Parts split(const Tensor& x, int dim, Dim length, std::size_t count) {
  const std::array<Dim, 3> lengths{length, length, length};
  return split(x, dim, std::span(lengths).first(count));
}

Parts split(const Tensor& x, int dim, Dim first, Dim second) {
  const std::array<Dim, 2> lengths{first, second};
  return split(x, dim, std::span<const Dim>(lengths));
}

namespace {

// SplitBackward: the gradients of the parts, one beside the other.
void split_all_rule(Node& node, const Gradients&, Gradients& out) {
  const auto dim = static_cast<int>(node.attr.i[0]);
  out[0] = cat(node.parts, dim, node.input_shape[static_cast<std::size_t>(dim)]);
  node.parts.clear();
}

// Puts a part's gradient where the node of the whole finds it.
void part_rule(Node& node, const Gradients& in, Gradients&) {
  node.edges[0].node->parts[static_cast<std::size_t>(node.attr.i[0])] = in[0];
}

}  // namespace

// PyTorch's one node is here one for the whole and one for each part, since nodes have few outputs.
std::vector<Tensor> split_all(const Tensor& x, int dim, std::span<const Dim> lengths) {
  Tape& tape = x.tape();
  const std::size_t i = index_of(x, dim);
  Node* node = tape.node(split_all_rule, {&x});
  Tensor whole = tape.detach(x);
  if (node != nullptr) {
    node->attr.i[0] = static_cast<std::int64_t>(i);
    node->parts.resize(lengths.size());
  }
  tape.attach(node, whole);
  Shape shape = x.shape();
  std::vector<Tensor> parts;
  std::uint64_t start = 0;
  for (const Dim& length : lengths) {
    Node* const one = tape.node(part_rule, {&whole});
    if (one != nullptr) one->attr.i[0] = static_cast<std::int64_t>(parts.size());
    shape.set(i, length);
    parts.push_back(
        tape.view_of(x, shape, x.impl()->strides, start * static_cast<std::uint64_t>(x.impl()->strides[i])));
    tape.attach(one, parts.back());
    start += length.size;
  }
  return parts;
}

std::vector<Tensor> split_each(const Tensor& x, int dim) {
  const std::uint64_t count = x.shape()[index_of(x, dim)].size;
  const std::vector<Dim> lengths(static_cast<std::size_t>(count), kOne);
  return split_all(x, dim, lengths);
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tape& tape = x.tape();
  Node* node = tape.node(backward::pass, {&x});
  Tensor result = tape.empty(OpKind::clone, x.shape(), x.dtype());
  tape.run(OpKind::clone, {&x}, {&result});
  tape.attach(node, result);
  return result;
}

}  // namespace ledger
