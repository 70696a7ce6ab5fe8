// megatron_products.cc - products that tensor-parallel ranks share, and norms before them.
#include "core/models/megatron_tensors.h"

namespace ledger::megatron {
namespace {

constexpr Attr kSum{0, {static_cast<std::int64_t>(ReduceOp::sum), 0}};

// What a rule has to know of Sharing, in a node's attributes.
void remember(Node* node, const Sharing& sharing) {
  if (node == nullptr) return;
  node->attr.i = {static_cast<std::int64_t>(sharing.tp), (sharing.sequence ? 1 : 0) + (sharing.torch ? 2 : 0)};
  node->attr.x = sharing.main_gradient ? 1 : 0;
}

// Of a product of x and a weight: both saved, and where its gradient is added to, if it is.
Node* product_node(BackwardRule rule, const Tensor& x, const Tensor& weight, const Sharing& sharing,
                   const Tensor& bias = Tensor()) {
  Tape& tape = x.tape();
  Node* node = tape.node(rule, {&x, &weight, &bias});
  remember(node, sharing);
  tape.save(node, x);
  tape.save(node, weight);
  if (sharing.main_gradient) tape.save(node, sharing.main_gradient);
  return node;
}

Tensor gather_tokens(const Tensor& x, std::uint64_t tp) {
  const Tape::Among ranks(x.tape(), RankGroup::tensor);
  return made(OpKind::all_gather, x, gathered_shape(x.shape(), tp), x.dtype());
}

Tensor scatter_tokens(const Tensor& x, std::uint64_t tp) {
  const Tape::Among ranks(x.tape(), RankGroup::tensor);
  return made(OpKind::reduce_scatter, x, scattered_shape(x.shape(), tp), x.dtype(), kSum);
}

void sum_over_ranks(const Tensor& x) {
  const Tape::Among ranks(x.tape(), RankGroup::tensor);
  all_reduce(x, ReduceOp::sum);
}

// x W^T (+ bias) into `result`.
void multiply(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& result) {
  Tape& tape = x.tape();
  const Tensor a = matrix(x), b = turned(weight), out = matrix(result);
  if (bias) {
    tape.run(OpKind::addmm, {&bias, &a, &b}, {&out});
  } else {
    tape.run(OpKind::mm, {&a, &b}, {&out});
  }
}

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Shape shape = x.shape();
  shape.set_last(weight.dim(0));
  Tensor result = x.tape().empty(OpKind::mm, shape, x.dtype());
  multiply(x, weight, bias, result);
  return result;
}

// The gradient of x: of [.., out] by W [out, in].
Tensor input_gradient(const Tensor& gradient, const Tensor& weight, DType dtype) {
  Shape shape = gradient.shape();
  shape.set_last(weight.dim(1));
  Tensor result = gradient.tape().empty(OpKind::mm, shape, dtype);
  const Tensor a = matrix(gradient), out = matrix(result);
  gradient.tape().run(OpKind::mm, {&a, &weight}, {&out});
  return result;
}

// Added to the main gradient by the product itself (wgrad_gemm_accum), or made for autograd to hand on.
Tensor weight_gradient(const Tensor& gradient, const Tensor& x, const Tensor& weight, const Tensor& main_gradient) {
  Tape& tape = x.tape();
  const Tensor a = turned(matrix(gradient)), b = matrix(x);
  if (!main_gradient) {
    const Tensor result = tape.empty(OpKind::mm, weight.shape(), weight.dtype());
    tape.run(OpKind::mm, {&a, &b}, {&result});
    return result;
  }
  const auto one_of = [](const Tensor& m) {
    return m.tape().view_of(m, {kOne, m.dim(0), m.dim(1)}, {0, m.impl()->strides[0], m.impl()->strides[1]}, 0);
  };
  const Tensor first = one_of(a), second = one_of(b), sum = one_of(main_gradient);
  tape.run(OpKind::baddbmm, {&sum, &first, &second}, {&sum}, {1, {}});
  return Tensor();
}

struct Back {
  Tape& tape;
  std::uint64_t tp;
  bool sequence, torch, fused;
  explicit Back(const Node& node)
      : tape(*node.tape),
        tp(static_cast<std::uint64_t>(node.attr.i[0])),
        sequence((node.attr.i[1] & 1) != 0),
        torch((node.attr.i[1] & 2) != 0),
        fused(node.attr.x != 0) {}
};

// --- backward rules
// -------------------------------------------------------------------------------------------------------------------

enum NormSaved : std::size_t { kX, kNorm, kRstd, kMean, kOut, kWeight, kMain };

void norm_backward(const Tensor& gradient, const Tensor& x, const Tensor& norm, const Tensor& mean, const Tensor& rstd,
                   Gradients& out) {
  Tape& tape = x.tape();
  out[0] = tape.empty(OpKind::layer_norm_backward, x.shape(), x.dtype());
  out[1] = tape.empty(OpKind::layer_norm_backward, norm.shape(), norm.dtype());
  const Tensor weight = row(norm, 0), of_weight = row(out[1], 0), r = beside(rstd);
  if (norm.dim(0).size == 1) {
    tape.run(OpKind::rms_norm_backward, {&gradient, &x, &r, &weight}, {&out[0], &of_weight});
    return;
  }
  const Tensor m = beside(mean), of_bias = row(out[1], 1);
  tape.run(OpKind::layer_norm_backward, {&gradient, &x, &m, &r, &weight}, {&out[0], &of_weight, &of_bias});
}

// The normed tokens are gathered again for the weight's gradient; that of the input is added up over the ranks, or
// scattered.
void norm_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, kX), norm = tape.unpack(node, kNorm);
  const Tensor rstd = tape.unpack(node, kRstd), mean = tape.unpack(node, kMean);
  Tensor dgrad = in[0];
  if (node.saved_count > kOut) {
    const Tensor ln_out = tape.unpack(node, kOut), weight = tape.unpack(node, kWeight);
    const Tensor main_gradient = back.fused ? tape.unpack(node, kMain) : Tensor();
    Tensor total = ln_out;
    if (back.sequence) total = gather_tokens(ln_out, back.tp);
    dgrad = input_gradient(in[0], weight, x.dtype());
    Tensor scattered;
    if (back.sequence) scattered = scatter_tokens(dgrad, back.tp);
    if (!back.sequence && back.tp > 1) sum_over_ranks(dgrad);
    out[2] = weight_gradient(in[0], total, weight, main_gradient);
    total.reset();
    if (scattered) dgrad = std::move(scattered);
    if (node.needs(3)) out[3] = made(OpKind::sum, in[0], {in[0].shape().last()}, x.dtype());
  }
  norm_backward(dgrad, x, norm, mean, rstd, out);
}

void row_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  const Tensor main_gradient = back.fused ? tape.unpack(node, 2) : Tensor();
  Tensor gradient = in[0];
  if (back.sequence) gradient = gather_tokens(gradient, back.tp);
  if (back.torch) tape.ensure_cublas_workspace();
  out[0] = input_gradient(gradient, weight, x.dtype());
  out[1] = weight_gradient(gradient, x, weight, main_gradient);
}

void gathered_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  const Tensor main_gradient = back.fused ? tape.unpack(node, 2) : Tensor();
  Tensor total = x;
  if (back.sequence) total = gather_tokens(x, back.tp);
  Tensor dgrad = input_gradient(in[0], weight, x.dtype());
  Tensor scattered;
  if (back.sequence) scattered = scatter_tokens(dgrad, back.tp);
  if (!back.sequence && back.tp > 1) sum_over_ranks(dgrad);
  out[1] = weight_gradient(in[0], total, weight, main_gradient);
  out[0] = scattered ? std::move(scattered) : std::move(dgrad);
}

void column_linear_backward(Node& node, const Gradients& in, Gradients& out) {
  const Back back(node);
  Tape& tape = back.tape;
  const Tensor x = tape.unpack(node, 0), weight = tape.unpack(node, 1);
  const Tensor main_gradient = back.fused ? tape.unpack(node, 2) : Tensor();
  Tensor total = x;
  if (back.sequence) {
    total = beginning(tape.unpack(node, back.fused ? 3 : 2), gathered_shape(x.shape(), back.tp));
    const Tape::Among ranks(tape, RankGroup::tensor);
    tape.run(OpKind::all_gather, {&x}, {&total});
  }
  tape.ensure_cublas_workspace();
  Tensor dgrad = input_gradient(in[0], weight, in[0].dtype());
  Tensor scattered;
  if (back.sequence) scattered = scatter_tokens(dgrad, back.tp);
  if (!back.sequence && back.tp > 1) sum_over_ranks(dgrad);
  out[1] = weight_gradient(in[0], total, weight, main_gradient);
  if (node.needs(2)) out[2] = made(OpKind::sum, in[0], {in[0].shape().last()}, in[0].dtype());
  out[0] = scattered ? std::move(scattered) : std::move(dgrad);
}

void scatter_sequence(Node& node, const Gradients& in, Gradients& out) {
  out[0] = scatter_tokens(contiguous(in[0]), static_cast<std::uint64_t>(node.attr.i[0]));
}

void gather_sequence(Node& node, const Gradients& in, Gradients& out) {
  out[0] = gather_tokens(in[0], static_cast<std::uint64_t>(node.attr.i[0]));
}

}  // namespace

// --- operators
// -------------------------------------------------------------------------------------------------------------------

Tensor norm_linear(const Tensor& x, const Norm& norm, const Tensor& weight, const Tensor& bias,
                   const Sharing& sharing) {
  Tape& tape = x.tape();
  Node* node = tape.node(norm_linear_backward, {&x, &norm.weights, &weight, &bias});
  remember(node, sharing);
  tape.save(node, x);
  tape.save(node, norm.weights);
  Tensor ln_out = tape.empty(OpKind::layer_norm, x.shape(), x.dtype());
  const DType statistics = tape.statistics_dtype(x.dtype());
  const Tensor rstd = tape.empty(OpKind::layer_norm, rows_of(x.shape()), statistics);
  // RMSNorm has no mean.
  const bool centred = norm.weights.dim(0).size == 2;
  const Tensor mean = centred ? tape.empty(OpKind::layer_norm, rows_of(x.shape()), statistics) : rstd;
  {
    const Tensor scale = row(norm.weights, 0), r = beside(rstd);
    if (centred) {
      const Tensor shift = row(norm.weights, 1), m = beside(mean);
      tape.run(OpKind::layer_norm, {&x, &scale, &shift}, {&ln_out, &m, &r}, {norm.eps, {}});
    } else {
      tape.run(OpKind::rms_norm, {&x, &scale}, {&ln_out, &r}, {norm.eps, {}});
    }
  }
  tape.save(node, rstd);
  tape.save(node, mean);
  if (!weight) {
    tape.attach(node, ln_out);
    return ln_out;
  }
  tape.save(node, ln_out);
  tape.save(node, weight);
  if (sharing.main_gradient) tape.save(node, sharing.main_gradient);
  Tensor total = ln_out;
  if (sharing.sequence) total = gather_tokens(ln_out, sharing.tp);
  Tensor result = product(total, weight, bias);
  tape.attach(node, result);
  return result;
}

Tensor row_linear(const Tensor& x, const Tensor& weight, const Sharing& sharing) {
  Tape& tape = x.tape();
  Node* node = product_node(row_linear_backward, x, weight, sharing);
  if (sharing.torch) tape.ensure_cublas_workspace();
  Tensor result = product(x, weight, Tensor());
  if (sharing.sequence) {
    result = scatter_tokens(result, sharing.tp);
  } else if (sharing.tp > 1) {
    sum_over_ranks(result);
  }
  tape.attach(node, result);
  return result;
}

Tensor gathered_linear(const Tensor& x, const Tensor& weight, const Sharing& sharing) {
  Tape& tape = x.tape();
  Node* node = product_node(gathered_linear_backward, x, weight, sharing);
  Tensor total = x;
  if (sharing.sequence) total = gather_tokens(x, sharing.tp);
  Tensor result = product(total, weight, Tensor());
  tape.attach(node, result);
  return result;
}

Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& buffer,
                     const Sharing& sharing) {
  Tape& tape = x.tape();
  Node* node = product_node(column_linear_backward, x, weight, sharing, bias);
  Tensor total = x;
  if (buffer) {
    tape.save(node, buffer);
    total = beginning(buffer, gathered_shape(x.shape(), sharing.tp));
    const Tape::Among ranks(tape, RankGroup::tensor);
    tape.run(OpKind::all_gather, {&x}, {&total});
  }
  tape.ensure_cublas_workspace();
  Tensor result = product(total, weight, Tensor());
  if (bias) {
    const Tensor without = std::move(result);
    result = tape.empty(OpKind::add, without.shape(), without.dtype());
    tape.run(OpKind::add, {&without, &bias}, {&result});
  }
  tape.attach(node, result);
  return result;
}

Tensor gather_from_sequence(const Tensor& x, TensorSeat seat) {
  Node* node = x.tape().node(scatter_sequence, {&x});
  if (node != nullptr) node->attr.i[0] = static_cast<std::int64_t>(seat.ranks);
  Tensor result = gather_tokens(x, seat.ranks);
  x.tape().attach(node, result);
  return result;
}

Tensor scatter_to_sequence(const Tensor& x, TensorSeat seat, bool sums) {
  Tape& tape = x.tape();
  Node* node = tape.node(gather_sequence, {&x});
  if (node != nullptr) node->attr.i[0] = static_cast<std::int64_t>(seat.ranks);
  Tensor result;
  if (sums) {
    result = scatter_tokens(x, seat.ranks);
  } else {  // clone_scatter_output_in_embedding
    const Shape part = scattered_shape(x.shape(), seat.ranks);
    const Tensor own = tape.view_of(x, part, x.impl()->strides, times(seat.rank, part.numel()));
    result = made(OpKind::clone, own, part, x.dtype());
  }
  tape.attach(node, result);
  return result;
}

}  // namespace ledger::megatron
