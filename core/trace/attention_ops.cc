// attention_ops.cc - softmax, dropout, masks and the fused attention kernels.

#include <array>

#include "core/trace/backward_rules.h"
#include "core/trace/operators.h"
#include "core/trace/strides.h"

namespace ledger {
namespace {

// The result of a softmax kind: allocated, run and saved, before and after as PyTorch does.
Tensor softmax_node(const Tensor& a) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::softmax, {&a});
  Tensor result = tape.empty(OpKind::softmax, a.shape(), a.dtype());
  tape.run(OpKind::softmax, {&a}, {&result});
  tape.save_output(node, result);
  tape.attach(node, result);
  return result;
}

}  // namespace

Attr attention_attr(double scale, double dropout, bool causal) {
  return {scale, {static_cast<std::int64_t>(dropout * 4294967296.0), causal ? 0 : 1}};
}

Tensor softmax(const Tensor& a, DType dtype) {
  return softmax_node(to(a, dtype));
}

Tensor safe_softmax(const Tensor& a) {
  Tape& tape = a.tape();
  Node* node = tape.node(backward::softmax, {&a});
  Tensor out = tape.empty(OpKind::softmax, a.shape(), a.dtype());
  tape.run(OpKind::softmax, {&a}, {&out});
  const Tensor masked = tape.empty(OpKind::is_masked, a.shape(), DType::boolean);
  tape.run(OpKind::is_masked, {&a}, {&masked});
  Shape rows = a.shape();
  rows.set_last({1, Sym::none});
  const Tensor masked_rows = tape.empty(OpKind::all, rows, DType::boolean);
  tape.run(OpKind::all, {&masked}, {&masked_rows});
  Tensor result = tape.empty(OpKind::zero_masked_rows, a.shape(), a.dtype());
  tape.run(OpKind::zero_masked_rows, {&masked_rows, &out}, {&result});
  tape.save_output(node, result);
  tape.attach(node, result);
  return result;
}

Tensor dropout(const Tensor& a, double p) {
  if (p == 0) return a;
  Tape& tape = a.tape();
  Node* node = tape.node(backward::dropout, {&a});
  if (node != nullptr) node->attr.x = p;
  const auto strides = elementwise_strides(a.shape(), a);
  Tensor result = tape.empty(OpKind::dropout, a.shape(), a.dtype(), strides ? &*strides : nullptr);
  const Tensor mask = tape.empty(OpKind::dropout, a.shape(), DType::boolean, strides ? &*strides : nullptr);
  tape.run(OpKind::dropout, {&a}, {&result, &mask}, {p, {}});
  tape.save(node, mask);
  tape.attach(node, result);
  return result;
}

Tensor causal_mask(Tape& tape, const Shape& shape, std::uint64_t before, std::uint64_t window) {
  Tensor mask = tape.empty(OpKind::causal_mask, shape, DType::boolean);
  tape.run(OpKind::causal_mask, {}, {&mask},
           {0, {static_cast<std::int64_t>(before), static_cast<std::int64_t>(window)}});
  return mask;
}

Tensor chunked_mask(Tape& tape, const Shape& shape, std::uint64_t chunk) {
  Tensor mask = tape.empty(OpKind::causal_mask, shape, DType::boolean);
  tape.run(OpKind::causal_mask, {}, {&mask}, {0, {0, -static_cast<std::int64_t>(chunk)}});
  return mask;
}

Tensor additive_mask(const Tensor& mask, DType dtype, bool infinite) {
  Tensor result = mask.tape().empty(OpKind::additive_mask, mask.shape(), dtype);
  mask.tape().run(OpKind::additive_mask, {&mask}, {&result}, {infinite ? 1.0 : 0.0, {}});
  return result;
}

Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale, double dropout,
                           const Tensor& bias, bool causal) {
  Tape& tape = query.tape();
  const Tensor q = tape.autocast_low(query);
  const Tensor k = tape.autocast_low(key);
  const Tensor v = tape.autocast_low(value);
  Node* node = tape.node(backward::efficient_attention, {&q, &k, &v});
  const Attr attr = attention_attr(scale, dropout, causal);
  if (node != nullptr) node->attr = attr;
  for (const Tensor* input : {&q, &k, &v})
    tape.save(node, *input);
  if (bias) tape.save(node, bias);
  const Dim b = q.dim(0), nh = q.dim(1), s = q.dim(2);
  Tensor out = transpose(tape.empty(OpKind::efficient_attention, {b, s, nh, v.dim(3)}, q.dtype()), 1, 2);
  const Dim aligned{round_up(s.size, 32), s.size % 32 == 0 ? s.sym : Sym::none};
  const Tensor logsumexp = tape.empty(OpKind::efficient_attention, {b, nh, aligned}, DType::f32);
  const Tensor seed = tape.empty(OpKind::efficient_attention, Shape{}, DType::i64);
  const Tensor offset = tape.empty(OpKind::efficient_attention, Shape{}, DType::i64);
  if (bias) {
    tape.run(OpKind::efficient_attention, {&q, &k, &v, &bias}, {&out, &logsumexp, &seed, &offset}, attr);
  } else {
    tape.run(OpKind::efficient_attention, {&q, &k, &v}, {&out, &logsumexp, &seed, &offset}, attr);
  }
  tape.save_output(node, out);
  for (const Tensor* output : {&logsumexp, &seed, &offset})
    tape.save(node, *output);
  tape.attach(node, out);
  return out;
}

namespace {

struct RandomState {
  Shape shape;
  DType dtype;
};

// Flash and cuDNN: the result in the query's layout, logsumexp, and two pieces of random state.
Tensor fused_attention(OpKind op, BackwardRule rule, const Tensor& query, const Tensor& key, const Tensor& value,
                       const std::array<RandomState, 2>& random, Attr attr) {
  Tape& tape = query.tape();
  const Tensor q = tape.autocast_low(query);
  const Tensor k = tape.autocast_low(key);
  const Tensor v = tape.autocast_low(value);
  Node* node = tape.node(rule, {&q, &k, &v});
  if (node != nullptr) node->attr = attr;
  for (const Tensor* input : {&q, &k, &v})
    tape.save(node, *input);
  const auto strides = elementwise_strides(q.shape(), q);
  Tensor out = tape.empty(op, q.shape(), q.dtype(), strides ? &*strides : nullptr);
  const Tensor logsumexp = tape.empty(op, {q.dim(0), q.dim(1), q.dim(2)}, DType::f32);
  const Tensor first = tape.empty(op, random[0].shape, random[0].dtype);
  const Tensor second = tape.empty(op, random[1].shape, random[1].dtype);
  const Tensor scratch = op == OpKind::cudnn_attention ? tape.cudnn_scratch() : Tensor();
  const std::array<const Tensor*, 3> inputs{&q, &k, &v};
  const std::array<const Tensor*, 5> outputs{&out, &logsumexp, &first, &second, &scratch};
  tape.run(op, inputs, std::span(outputs).first(scratch ? 5 : 4), attr);
  tape.save_output(node, out);
  for (const Tensor* output : {&logsumexp, &first, &second})
    tape.save(node, *output);
  tape.attach(node, out);
  return out;
}

}  // namespace

Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale, double dropout,
                       bool causal) {
  return fused_attention(OpKind::flash_attention, backward::flash_attention, query, key, value,
                         {{{{{16, Sym::none}}, DType::u8}, {{{8, Sym::none}}, DType::u8}}},
                         attention_attr(scale, dropout, causal));
}

Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale, double dropout,
                       bool causal) {
  return fused_attention(OpKind::cudnn_attention, backward::cudnn_attention, query, key, value,
                         {{{Shape{}, DType::i64}, {Shape{}, DType::i64}}}, attention_attr(scale, dropout, causal));
}

}  // namespace ledger
