#include "core/models/t5_attention.h"

#include <utility>

namespace ledger {
namespace {

// What _relative_position_bucket makes besides its result, of int64 [queries, keys] and other dtypes, in its order. Of
// these the buckets alone are computed, by one operator.
class Distances {
 public:
  Distances(Tape& tape, Dim queries, Dim keys) : tape_(tape), shape_{queries, keys} {
    context_ = add(bookkeeping(tape, {queries, kOne}, DType::i64), 0.0);  // + past_seen_tokens
    memory_ = arange(tape, keys);
    relative_ = passing(DType::i64);
  }

  Tensor buckets(std::uint64_t count, std::int64_t max_distance, bool both_ways) {
    Tensor sum, distance;
    if (both_ways) {
      Tensor after = cast(passing(DType::boolean), DType::i64);
      after = passing(DType::i64);  // * num_buckets
      sum = passing(DType::i64);    // 0 + it
      after.reset();
      distance = passing(DType::i64);  // abs
    } else {
      Tensor least = passing(DType::i64);  // zeros_like
      least = passing(DType::i64);         // min
      distance = passing(DType::i64);      // its negative
    }
    const Tensor is_small = passing(DType::boolean);
    const Tensor large = where_large();
    Tensor chosen = tape_.empty(OpKind::relative_buckets, shape_, DType::i64);
    tape_.run(OpKind::relative_buckets, {}, {&chosen},
              {both_ways ? 1.0 : 0.0, {static_cast<std::int64_t>(count), max_distance}});
    if (both_ways) return chosen;  // added to the others in place
    return add(chosen, 0.0);       // 0 + it
  }

 private:
  Tensor passing(DType dtype) const { return bookkeeping(tape_, shape_, dtype); }
  Tensor cast(const Tensor&, DType dtype) const { return passing(dtype); }

  // max_exact + (log(distance / max_exact) / log(..) * (num_buckets - max_exact)).to(long), no more than the last.
  Tensor where_large() const {
    Tensor steps = passing(DType::f32);
    for (int i = 0; i < 4; ++i)
      steps = passing(DType::f32);
    Tensor large = cast(steps, DType::i64);
    steps.reset();
    large = passing(DType::i64);
    const Tensor most = passing(DType::i64);
    large = passing(DType::i64);
    return large;
  }

  Tape& tape_;
  Shape shape_;
  Tensor context_, memory_, relative_;
};

}  // namespace

T5Attention T5Attention::make(ModuleBuilder& builder, const std::string& block, Over over, const ModelConfig& config,
                              const DecoderDims& n, bool has_distances) {
  T5Attention attention;
  if (over == Over::encoder) {
    attention.place = "layer.1";
    attention.name = "EncDecAttention";
  }
  const Tape::Scope place(builder.tape(), attention.place);
  const std::string path = block + attention.place + ".";
  attention.heads_ = n.nh;
  attention.width_ = n.d;
  attention.dropout = config.residual_dropout;
  attention.max_distance = static_cast<std::int64_t>(config.t5.max_distance);
  {
    const Tape::Scope scope(builder.tape(), attention.name);
    const std::string at = path + attention.name + ".";
    attention.q = Linear::make(builder, at, "q", n.h, n.q_dim, false);
    attention.k = Linear::make(builder, at, "k", n.h, n.q_dim, false);
    attention.v = Linear::make(builder, at, "v", n.h, n.q_dim, false);
    attention.o = Linear::make(builder, at, "o", n.q_dim, n.h, false);
    if (has_distances)
      attention.distances =
          Embedding::make(builder, at, "relative_attention_bias", {config.t5.buckets, Sym::none}, n.nh);
  }
  attention.norm = Norm::make(builder, path, "layer_norm", NormKind::rms_t5, n.h, config.rms_norm_eps);
  return attention;
}

// [1, heads, queries, keys], a view of the table's rows.
Tensor T5Attention::compute_bias(Tape& tape, Dim queries, Dim keys) const {
  Distances places(tape, queries, keys);
  const Tensor buckets = places.buckets(distances.weight.dim(0).size, max_distance, both_ways);
  const Tensor values = distances.forward(buckets);
  return unsqueeze(transpose(transpose(values, 1, 2), 0, 1), 0);  // permute([2, 0, 1])
}

Tensor T5Attention::make_bias(const Tensor& scores, const Tensor& mask) const {
  Tape& tape = scores.tape();
  const Tape::Scope scope(tape, "position_bias");
  Tensor bias;
  if (distances.weight) {
    bias = compute_bias(tape, scores.dim(2), scores.dim(3));
  } else {
    bias = zeros(tape, {kOne, heads_, scores.dim(2), scores.dim(3)}, scores.dtype());
    if (checkpointed) tape.require_grad(bias);
  }
  return mask ? bias + mask : bias;
}

Tensor T5Attention::attend(const Tensor& hidden, const Tensor& mask, const Tensor& states, Tensor& bias) const {
  const Tape::Scope scope(hidden.tape(), name);
  enter_module(this, hidden);
  const auto heads = [&](const Linear& projection, const Tensor& of) {
    return transpose(view(projection.forward(of), {of.dim(0), of.dim(1), heads_, width_}), 1, 2);
  };
  const Tensor query = heads(q, hidden);
  const Tensor key = heads(k, states);
  const Tensor value = heads(v, states);
  Tensor scores = matmul(query, transpose(key, 3, 2));
  if (!bias) bias = make_bias(scores, mask);
  scores = add_onto(scores, bias);
  Tensor weights = to(scores, DType::f32);
  weights = softmax(weights, weights.dtype());
  weights = to(weights, scores.dtype());
  weights = ledger::dropout(weights, dropout);
  Tensor output = matmul(weights, value);
  output = contiguous(transpose(output, 1, 2));
  output = reshape(output, {hidden.dim(0), hidden.dim(1), {times(heads_.size, width_.size), Sym::q_dim}});
  output = o.forward(output);
  leave_module(this, output);
  return output;
}

Tensor T5Attention::forward(const Tensor& hidden, const Tensor& mask, const Tensor& encoded, Tensor& bias) const {
  const Tape::Scope scope(hidden.tape(), place);
  const Tensor normed = norm.forward(hidden);
  const Tensor attended = attend(normed, mask, encoded ? encoded : normed, bias);
  const Tape::Scope drop(hidden.tape(), "dropout");
  return hidden + ledger::dropout(attended, dropout);
}

}  // namespace ledger
