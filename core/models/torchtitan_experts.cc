#include "core/models/torchtitan_experts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/models/megatron_expert_ops.h"

namespace ledger {
namespace {

constexpr std::uint64_t kAligned = 8;  // TOKEN_GROUP_ALIGN_SIZE_M

Dim sized(std::uint64_t size) {
  return {size, Sym::none};
}

// --- _permute and _unpermute
// -------------------------------------------------------------------------------------------------------------------

// Rows as they arrive, by rank and then by expert, as many in each chunk; and as the products take them, by expert,
// each expert's rounded up. Not all of the room that there is for them is taken.
struct RowChunks {
  std::uint64_t rows, ranks, experts;

  std::uint64_t each() const { return rows / times(ranks, experts); }
  std::uint64_t rounded() const { return std::max(kAligned, round_up(times(ranks, each()), kAligned)); }
  std::uint64_t room() const { return plus(rows, times(experts, kAligned)); }
};

RowChunks chunks_of(const Node& node, Dim rows) {
  return {rows.size, static_cast<std::uint64_t>(node.attr.i[0]), static_cast<std::uint64_t>(node.attr.i[1])};
}

Tensor first_rows(const Tensor& x, std::uint64_t rows) {
  return x.tape().view_of(x, {sized(rows), x.dim(1)}, x.impl()->strides, 0);
}

enum class Way : std::uint8_t { to_groups, back };

void regroup(const Tensor& arrived, const Tensor& grouped, const RowChunks& c, Way way) {
  Tape& tape = arrived.tape();
  const std::uint64_t chunk = times(c.each(), arrived.dim(1).size);
  const auto step = [](std::uint64_t elements) { return static_cast<std::int64_t>(elements); };
  const Shape shape{sized(c.experts), sized(c.ranks), sized(chunk)};
  const Tensor a = tape.view_of(arrived, shape, {step(chunk), step(times(c.experts, chunk)), 1}, 0);
  const Tensor b = tape.view_of(grouped, shape, {step(times(c.rounded(), arrived.dim(1).size)), step(chunk), 1}, 0);
  if (way == Way::to_groups) {
    tape.run(OpKind::zeros, {}, {&grouped});
    tape.run(OpKind::clone, {&a}, {&b});
  } else {
    tape.run(OpKind::clone, {&b}, {&a});
  }
}

// [R, h] with another row behind it.
Tensor with_a_row(const Tensor& x, OpKind op) {
  Tensor result = x.tape().empty(op, {sized(plus(x.dim(0).size, 1)), x.dim(1)}, x.dtype());
  const Tensor rows = first_rows(result, x.dim(0).size);
  x.tape().run(OpKind::clone, {&x}, {&rows});
  return result;
}

// vstack's gradient is a view of the indexed tensor's.
void permuted_rule(Node& node, const Gradients& in, Gradients& out) {
  const Dim rows = node.input_shape[0];
  const Tensor whole =
      node.tape->empty(OpKind::index_rows_backward, {sized(plus(rows.size, 1)), in[0].dim(1)}, in[0].dtype());
  regroup(whole, in[0], chunks_of(node, rows), Way::back);
  out[0] = first_rows(whole, rows.size);
}

// The slice's gradient has the row behind it again.
void unpermuted_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor whole = with_a_row(in[0], OpKind::zeros);
  out[0] = node.tape->empty(OpKind::index_rows, node.input_shape, in[0].dtype());
  regroup(whole, out[0], chunks_of(node, in[0].dim(0)), Way::to_groups);
}

void keep_chunks(Node* node, const RowChunks& c) {
  if (node != nullptr) node->attr.i = {static_cast<std::int64_t>(c.ranks), static_cast<std::int64_t>(c.experts)};
}

Tensor permuted(const Tensor& x, const RowChunks& c, const Tensor& places) {
  Tape& tape = x.tape();
  Node* node = tape.node(permuted_rule, {&x});
  keep_chunks(node, c);
  tape.save(node, places);
  const Tensor whole = with_a_row(x, OpKind::cat);
  Tensor result = tape.empty(OpKind::index_rows, {sized(c.room()), x.dim(1)}, x.dtype());
  regroup(whole, result, c, Way::to_groups);
  tape.attach(node, result);
  return result;
}

Tensor unpermuted(const Tensor& x, const RowChunks& c, const Tensor& places) {
  Tape& tape = x.tape();
  Node* node = tape.node(unpermuted_rule, {&x});
  keep_chunks(node, c);
  tape.save(node, places);
  const Tensor whole = tape.empty(OpKind::index_put, {sized(plus(c.rows, 1)), x.dim(1)}, x.dtype());
  regroup(whole, x, c, Way::back);
  Tensor result = first_rows(whole, c.rows);
  tape.attach(node, result);
  return result;
}

// --- back to the tokens
// ---------------------------------------------------------------------------------------------------

void rows_rule(Node& node, const Gradients& in, Gradients& out) {
  const Tensor places = node.tape->unpack(node, 0);
  const std::size_t source = node.edge_count - 1u;
  if (source != 0) out[0] = in[0];
  out[source] = node.tape->empty(OpKind::index_rows, {places.dim(0), in[0].dim(1)}, in[0].dtype());
  node.tape->run(OpKind::index_rows, {&in[0], &places}, {&out[source]});
}

// a.scatter_add(0, places, source): rows of [T, h].
Tensor scatter_add(const Tensor& a, const Tensor& places, const Tensor& source) {
  Tape& tape = a.tape();
  Node* node = tape.node(rows_rule, {&a, &source});
  tape.save(node, places);
  Tensor result = tape.empty(OpKind::gather_backward, a.shape(), a.dtype());
  tape.run(OpKind::index_rows_backward, {&source, &places}, {&result});
  tape.run(OpKind::add, {&result, &a}, {&result});
  tape.attach(node, result);
  return result;
}

// zeros; result[places] = source, every row once.
Tensor put_rows(const Tensor& source, const Tensor& places) {
  Tape& tape = source.tape();
  const Tensor zero = zeros(tape, source.shape(), source.dtype());
  Node* node = tape.node(rows_rule, {&source});
  tape.save(node, places);
  Tensor result = tape.detach(zero);
  index_put(result, places, source);
  tape.attach(node, result);
  return result;
}

// x.bfloat16(); what numerics tests compute in fp64 stays as it is.
Tensor in_16_bits(const Tensor& x) {
  return x.dtype() == DType::f64 ? x : to(x, DType::bf16);
}

Tensor load_counter(Tape& tape, const char* name, Dim size) {
  const Tape::Scope scope(tape, name);
  const Tape::In in(tape, Category::buffers);
  return zeros(tape, {size}, DType::f32);
}

}  // namespace

// --- parts
// ------------------------------------------------------------------------------------------------------------------

Tensor TitanExperts::make_experts(ModuleBuilder& builder, const std::string& path, const char* name, Dim rows,
                                  Dim width) const {
  const Dim count{own(), options_->ep == 1 ? Sym::experts : Sym::none};
  Tensor weight = builder.parameter(path, {count, rows, width}, Parameter::Role::matrix, name);
  const std::uint64_t matrix = times(rows.size, width.size);
  builder.tape().trace().parameters.back().cut = cut_among(options_->ep, options_->ep_rank, moe().experts, matrix);
  return weight;
}

void TitanExperts::make(ModuleBuilder& builder, const std::string& path, const DecoderDims& n, UnitId layer,
                        UnitId experts) {
  Tape& tape = builder.tape();
  const Tape::Scope scope(tape, "moe");
  const std::string at = path + "moe.";
  if (options_->ep != 1) builder.open(unit_ = experts);
  {
    const Tape::Scope inner(tape, "experts");
    w1_ = make_experts(builder, at + "experts", "w1", n.ffn_e, n.h);
    w2_ = make_experts(builder, at + "experts", "w2", n.h, n.ffn_e);
    w3_ = make_experts(builder, at + "experts", "w3", n.ffn_e, n.h);
  }
  builder.open(layer);
  {
    const Tape::Scope inner(tape, "router");
    gate_ = Linear::make(builder, at + "router.", "gate", n.h, n.experts, false);
  }
  if (moe().shared_width != 0) {
    ModuleNames names = names_of(*config_, options_->stack);
    names.mlp = "shared_experts";
    shared_ = FeedForward::make(builder, at, ModelConfig{}, names, n.h, sized(moe().shared_width));
  }
  expert_bias_ = load_counter(tape, "expert_bias", n.experts);
  tokens_per_expert_ = load_counter(tape, "tokens_per_expert", n.experts);
}

// --- the router
// -------------------------------------------------------------------------------------------------------------

// _get_node_limited_routing_scores: whose values nothing reads where experts take turns.
Tensor TitanExperts::candidates(const Tensor& scores) const {
  Tensor biased = scores + expert_bias_;
  if (!form_.limits_groups || moe().groups == 1) return biased;
  Tape& tape = scores.tape();
  const Dim tokens = scores.dim(0), groups = sized(moe().groups);
  const Tensor grouped = view(biased, {tokens, groups, sized(moe().experts / moe().groups)});
  const Tensor best = sum_over(topk(grouped, sized(2)).values, -1, false);
  const TopK kept = topk(best, sized(moe().groups_kept));
  const Tensor mask = bookkeeping(tape, {tokens, groups, kOne}, DType::boolean);
  return masked_fill(grouped, mask, -std::numeric_limits<double>::infinity());
}

// TokenChoiceTopKRouter. Really run, experts take turns, as with moe_force_load_balance.
TitanExperts::Routed TitanExperts::route(const Tensor& x) const {
  Tape& tape = x.tape();
  const Tape::Scope scope(tape, "router");
  Tensor scores = gate_.forward(x);
  {
    const Tensor wide = to(scores, DType::f32);
    scores = config_->style.routing == Routing::grouped_sigmoid ? sigmoid(wide) : softmax(wide, DType::f32);
  }
  Routed routed;
  {
    const Tape::NoGrad no_grad(tape);
    const Shape shape{x.dim(0), sized(moe().per_token)};
    const Tensor among = candidates(scores), values = tape.empty(OpKind::topk, shape, DType::f32);
    routed.places = tape.empty(OpKind::topk, shape, DType::i64);
    tape.run(OpKind::experts_in_turn, {}, {&routed.places}, {0, {static_cast<std::int64_t>(moe().experts), 1}});
  }
  routed.scores = gather(scores, routed.places);
  if (moe().normalised) {
    const Tensor total = sum_over(routed.scores, -1, true) + 1e-20;
    routed.scores = div(routed.scores, total);
  }
  routed.scores = routed.scores * moe().scale;
  return routed;
}

// --- the experts
// ------------------------------------------------------------------------------------------------------------

// _run_experts_grouped_mm, in 16 bits whatever the weights are in. `each`: rows of an expert.
Tensor TitanExperts::products(const Tensor& rows, std::uint64_t each) const {
  Tape& tape = rows.tape();
  const auto by = [](const Tensor& weight) { return transpose(in_16_bits(weight), 1, 2); };
  const Tensor ends = cumsum_last(full(tape, {sized(own())}, static_cast<double>(each), DType::i32));
  const Tensor x = in_16_bits(rows);
  Tensor hidden = silu(grouped_mm(x, by(w1_), ends));
  hidden = hidden * grouped_mm(x, by(w3_), ends);
  return to(grouped_mm(hidden, by(w2_), ends), rows.dtype());
}

// GroupedExperts between the hooks of ExpertParallel and, outside them, FSDP's. What a module is called with and what
// its forward returns live as long as its hooks run.
Tensor TitanExperts::through_experts(const Tensor& routed) const {
  Tape& tape = routed.tape();
  const Tape::Scope scope(tape, "experts");
  ParameterUnits* const units = unit_ == kNoUnit ? nullptr : options_->units;
  const Tensor seen = units != nullptr ? units->before_forward(unit_, routed) : routed;
  const RowChunks chunks{routed.dim(0).size, options_->ep, own()};
  const Tensor places = bookkeeping(tape, {sized(chunks.room())}, DType::i32);
  Tensor rows;
  {
    const Tensor arrived = megatron::exchange(seen, options_->ep);
    rows = permuted(arrived, chunks, places);
  }
  Tensor result;
  {
    Tensor computed = products(rows, chunks.rounded());
    const Tensor back = unpermuted(computed, chunks, places);
    if (options_->ep == 1) computed.reset();
    result = megatron::exchange(back, options_->ep);
  }
  if (units != nullptr) units->after_forward(unit_, result);
  return result;
}

// MoE.forward.
Tensor TitanExperts::forward(const Tensor& input) const {
  Tape& tape = input.tape();
  const Tape::Scope scope(tape, "moe");
  const Dim tokens{times(input.dim(0).size, input.dim(1).size), Sym::tokens}, k = sized(moe().per_token);
  const Dim visits{times(tokens.size, k.size), Sym::routed};
  const Tensor x = view(input, {tokens, input.dim(2)});
  const Routed routed = route(x);
  Tensor order;
  {
    const Tape::NoGrad no_grad(tape);
    order = sort(view(routed.places, {visits})).places;
  }
  const Tensor sorted_scores = index_rows(view(routed.scores, {visits}), order);
  const Tensor sources = floor_divide(order, k.size);
  const Tensor routed_input = index_rows(x, sources);
  Tensor output = through_experts(routed_input);
  const Tensor shared = shared_ ? shared_->forward(x) : Tensor();
  if (form_.sums_by_product) {
    const Tensor unsorted = view(put_rows(output, order), {tokens, k, x.dim(1)});
    const Tensor sums = bmm(view(routed.scores, {tokens, kOne, k}), to(unsorted, DType::f32));
    const Tensor of_experts = view(to(sums, x.dtype()), x.shape());
    return view(shared ? shared + of_experts : of_experts, input.shape());
  }
  {
    const Tensor weighted = to(output, DType::f32) * view(sorted_scores, {visits, kOne});
    output = to(weighted, x.dtype());
  }
  return view(scatter_add(shared ? shared : zeros_like(x), sources, output), input.shape());
}

}  // namespace ledger
