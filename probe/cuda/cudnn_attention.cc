#include "probe/cuda/cudnn_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ledger::cuda {
namespace {

using namespace cudnn;
using Id = CudnnGraph::Id;

constexpr std::int64_t kWidest = 128;         // of a head; wider ones are taken on some cards only
constexpr std::int64_t kVector = 8;           // heads are read in pieces of 16 bytes
constexpr std::int64_t kKeyTile = 128;        // of backward
constexpr std::size_t kPadsKeyTiles = 91501;  // before, backward of other lengths needed a padding mask

Four four(const std::array<std::uint64_t, kMaxRank>& values) {
  Four result{};
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<std::int64_t>(values[i]);
  return result;
}

Four strides_of(const device::Operand& operand) {
  Four result{};
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = operand.strides[i];
  return result;
}

Four swapped(Four four) {
  std::swap(four[2], four[3]);
  return four;
}

const char* refusal_of(const AttentionShape& s, const device::Operand& value, const Attr& attr, std::size_t version) {
  if (s.dtype != DType::bf16 && s.dtype != DType::f16) return "cuDNN's attention computes in 16 bits";
  if (four(value.sizes) != s.key || s.query[0] != s.key[0] || s.query[3] != s.key[3])
    return "queries, keys and values have shapes that do not go together";
  if (s.key[1] == 0 || s.query[1] % s.key[1] != 0) return "the heads of keys do not divide those of queries";
  if (s.query[2] != s.key[2]) return "there are cached keys";
  if (s.query[3] > kWidest || s.query[3] % kVector != 0) return "heads are not a multiple of 8 up to 128 wide";
  if (attr.i[0] != 0 || attr.i[1] != 0) return "probabilities are dropped, or what is not causal";
  if (s.backward && version < kPadsKeyTiles && s.key[2] % kKeyTile != 0)
    return "before cuDNN 9.15.1 backward takes sequences in multiples of 128";
  for (const Four* strides : {&s.of_query, &s.of_key, &s.of_value, &s.of_result}) {
    if ((*strides)[3] != 1) return "heads do not lie side by side";
  }
  return nullptr;
}

}  // namespace

AttentionQuestion attention_question(OpKind op, std::span<const device::Operand> in,
                                     std::span<const device::Operand> out, const Attr& attr, std::size_t version) {
  AttentionQuestion question;
  AttentionShape& s = question.shape;
  s.backward = op == OpKind::cudnn_attention_backward;
  const std::size_t first = s.backward ? 1 : 0;
  const device::Operand &q = in[first], &k = in[first + 1], &v = in[first + 2];
  s.dtype = q.dtype;
  s.query = four(q.sizes);
  s.key = four(k.sizes);
  s.of_query = strides_of(q);
  s.of_key = strides_of(k);
  s.of_value = strides_of(v);
  s.of_result = strides_of(s.backward ? in[4] : out[0]);
  if (s.backward) {
    s.of_gradient = strides_of(in[0]);
    s.of_dquery = strides_of(out[0]);
    s.of_dkey = strides_of(out[1]);
    s.of_dvalue = strides_of(out[2]);
  }
  question.refusal = refusal_of(s, v, attr, version);
  return question;
}

CudnnAttention::CudnnAttention(const Cudnn& library, const AttentionShape& shape)
    : shape_(shape), type_(shape.dtype == DType::f16 ? kHalf : kBf16), graph_(library) {
  if (shape.backward) {
    backward();
  } else {
    forward();
  }
}

Id CudnnAttention::io(const Four& sizes, const Four& strides) {
  const Id id = graph_.tensor(type_, sizes, strides);
  operands_.push_back(id);
  return id;
}

// In memory between the parts of the graph, fp32 and dense.
Id CudnnAttention::kept(const Four& sizes, Bytes& bytes) {
  bytes = round_up(times(times(static_cast<Bytes>(sizes[0]), static_cast<Bytes>(sizes[1])),
                         times(times(static_cast<Bytes>(sizes[2]), static_cast<Bytes>(sizes[3])), 4)),
                   kAlignment);
  kept_bytes_ = plus(kept_bytes_, bytes);
  return graph_.tensor(kFloat, sizes, {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1});
}

// Scores of later keys become the lowest number.
Id CudnnAttention::masked(Id scores) {
  const auto [b, n, s, d] = shape_.query;
  const Four square{b, n, s, s};
  const Id row = graph_.between(kInt32, square), column = graph_.between(kInt32, square);
  const Id seen = graph_.between(kBoolean, square), result = graph_.between(kFloat, square);
  graph_.index(scores, 2, row);
  graph_.index(scores, 3, column);
  graph_.binary(kGreaterOrEqual, row, column, seen, kBoolean);
  lowest_ = graph_.scalar();
  graph_.select(scores, lowest_, seen, result);
  return result;
}

// S = scale Q K^T, masked; P = softmax of S with its logsumexp; O = P V.
void CudnnAttention::forward() {
  const auto [b, n, s, d] = shape_.query;
  const Four square{b, n, s, s}, column{b, n, s, 1};
  const Id q = io(shape_.query, shape_.of_query), k = io(swapped(shape_.key), swapped(shape_.of_key));
  const Id v = io(shape_.key, shape_.of_value), o = io(shape_.query, shape_.of_result);
  const Id logsumexp = graph_.tensor(kFloat, column, {n * s, s, 1, 1});
  operands_.push_back(logsumexp);
  scale_ = graph_.scalar();
  const Id product = graph_.between(kFloat, square), scores = graph_.between(kFloat, square);
  graph_.matmul(q, k, product);
  graph_.binary(kMul, product, scale_, scores);
  const Id visible = masked(scores);
  const Id largest = graph_.between(kFloat, column), less = graph_.between(kFloat, square);
  const Id powers = graph_.between(kFloat, square), total = graph_.between(kFloat, column);
  const Id log_total = graph_.between(kFloat, column), p = graph_.between(type_, square);
  graph_.reduce(kMax, visible, largest);
  graph_.binary(kSub, visible, largest, less);
  graph_.unary(kExp, less, powers);
  graph_.reduce(kSum, powers, total);
  graph_.unary(kLog, total, log_total);
  graph_.binary(kAdd, largest, log_total, logsumexp);
  graph_.binary(kDiv, powers, total, p);
  graph_.matmul(p, v, o);
}

// D = rows of sum(dO O); P = exp(S - logsumexp), masked; dV = P^T dO; dS = scale P (dO V^T - D); dK = dS^T Q; dQ = dS
// K. Grouped heads have dK and dV at all query heads first.
void CudnnAttention::backward() {
  const auto [b, n, s, d] = shape_.query;
  const Four square{b, n, s, s}, column{b, n, s, 1}, whole{b, n, s, d};
  const bool grouped = shape_.key[1] != n;
  const Id gradient = io(shape_.query, shape_.of_gradient), q = io(shape_.query, shape_.of_query);
  const Id k = io(swapped(shape_.key), swapped(shape_.of_key)), v = io(swapped(shape_.key), swapped(shape_.of_value));
  const Id o = io(shape_.query, shape_.of_result);
  const Id logsumexp = graph_.tensor(kFloat, column, {n * s, s, 1, 1});
  operands_.push_back(logsumexp);
  const Id dq = io(shape_.query, shape_.of_dquery);
  const Id dk = io(shape_.key, shape_.of_dkey), dv = io(shape_.key, shape_.of_dvalue);
  scale_ = graph_.scalar();
  one_ = graph_.scalar();
  Bytes row_bytes = 0;
  accumulator_ = kept(whole, accumulator_bytes_);
  row_sums_ = kept(column, row_bytes);

  const Id inner = graph_.between(kFloat, whole), sums = graph_.between(kFloat, column);
  graph_.binary(kMul, gradient, o, inner);
  graph_.reduce(kSum, inner, sums);
  graph_.binary(kMul, sums, one_, row_sums_);

  const Id product = graph_.between(kFloat, square), scores = graph_.between(kFloat, square);
  const Id less = graph_.between(kFloat, square), p = graph_.between(kFloat, square);
  graph_.matmul(q, k, product);
  graph_.binary(kMul, product, scale_, scores);
  graph_.binary(kSub, scores, logsumexp, less);
  graph_.unary(kExp, masked(less), p);

  // [b, n, s keys, s queries], the queries in the order of memory as before.
  const Four turned{n * s * s, s * s, 1, s};
  const auto gradient_of = [&](Id weights, Id other, Id result) {
    const Id transposed = graph_.tensor(type_, square, turned, CudnnGraph::Where::nowhere);
    graph_.reshape(weights, transposed);
    if (!grouped) return graph_.matmul(transposed, other, result);
    const Id all_heads = graph_.between(type_, whole);
    graph_.matmul(transposed, other, all_heads);
    graph_.reduce(kSum, all_heads, result);
  };
  gradient_of(p, gradient, dv);

  const Id dp = graph_.between(kFloat, square), centred = graph_.between(kFloat, square);
  const Id slopes = graph_.between(kFloat, square), ds = graph_.between(kFloat, square);
  graph_.matmul(gradient, v, dp);
  graph_.binary(kSub, dp, row_sums_, centred);
  graph_.binary(kMul, centred, p, slopes);
  graph_.binary(kMul, slopes, scale_, ds);
  gradient_of(ds, q, dk);

  const Id straight = graph_.tensor(type_, shape_.key, shape_.of_key, CudnnGraph::Where::nowhere);
  graph_.reshape(k, straight);
  graph_.matmul(ds, straight, accumulator_);
  graph_.unary(kIdentity, accumulator_, dq);
}

bool CudnnAttention::run(Handle handle, std::span<const device::Operand> in, std::span<const device::Operand> out,
                         double scale, std::byte* scratch) {
  std::vector<Id> ids = operands_;
  std::vector<void*> pointers;
  const std::size_t read = shape_.backward ? 6 : 3, written = shape_.backward ? 3 : 2;
  for (std::size_t i = 0; i < read; ++i)
    pointers.push_back(in[i].data);
  for (std::size_t i = 0; i < written; ++i)
    pointers.push_back(out[i].data);
  float factor = static_cast<float>(scale), lowest = std::numeric_limits<float>::lowest(), one = 1;
  const auto give = [&](Id id, void* pointer) {
    ids.push_back(id);
    pointers.push_back(pointer);
  };
  give(scale_, &factor);
  give(lowest_, &lowest);
  if (shape_.backward) {
    std::byte* const kept = scratch + round_up(graph_.workspace_bytes(), kAlignment);
    give(one_, &one);
    give(accumulator_, kept);
    give(row_sums_, kept + accumulator_bytes_);
  }
  return graph_.run(handle, ids, pointers, scratch);
}

std::string CudnnAttentions::open(void* stream) {
  return library_.open(stream);
}

CudnnAttention* CudnnAttentions::plan_for(const AttentionQuestion& question) {
  if (library_.handle() == nullptr) return nullptr;
  if (question.refusal != nullptr) {
    last_refusal_ = question.refusal;
    return nullptr;
  }
  const auto [place, is_new] = plans_.try_emplace(question.shape);
  if (!is_new) return place->second.get();
  auto attention = std::make_unique<CudnnAttention>(library_, question.shape);
  if (attention->finish(library_.handle()) && attention->plan(library_.handle())) {
    place->second = std::move(attention);
  } else {
    last_refusal_ = attention->error();
  }
  return place->second.get();
}

std::optional<Bytes> CudnnAttentions::scratch_bytes(OpKind op, std::span<const device::Operand> in,
                                                    std::span<const device::Operand> out, const Attr& attr) {
  const CudnnAttention* plan = plan_for(attention_question(op, in, out, attr, library_.version()));
  return plan == nullptr ? std::nullopt : std::optional(plan->scratch_bytes());
}

AttentionScratch plan_attention(CudnnAttentions& library, const Trace& trace) {
  AttentionScratch scratch{.planned = true};
  for (const Run& run : trace.runs) {
    const bool backward = run.op == OpKind::cudnn_attention_backward;
    if (!backward && run.op != OpKind::cudnn_attention) continue;
    std::vector<device::Operand> operands(run.input_count() + run.outputs);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const View& view = trace.views[run.first_view + i];
      operands[i] = {
          .data = nullptr, .dtype = view.dtype, .rank = view.rank, .sizes = view.sizes, .strides = view.strides};
    }
    const std::span<const device::Operand> all = operands;
    const auto bytes =
        library.scratch_bytes(run.op, all.first(run.input_count()), all.subspan(run.input_count()), run.attr);
    if (!bytes) return {.planned = false, .declined = library.last_refusal()};
    Bytes& most = backward ? scratch.backward_bytes : scratch.forward_bytes;
    most = std::max(most, *bytes);
  }
  return scratch;
}

// The scratch memory is the operand after those that the operator always has.
bool CudnnAttentions::attend(device::Call& call) {
  const AttentionQuestion question = attention_question(call.run.op, call.in, call.out, call.attr, library_.version());
  CudnnAttention* plan = plan_for(question);
  if (plan == nullptr) return false;
  const std::size_t always = question.shape.backward ? 3 : 4;
  const bool given = call.out.size() > always;
  if (plan->scratch_bytes() > (given ? call.out[always].numel() : 0)) return false;
  const double scale = call.attr.x != 0 ? call.attr.x : 1 / std::sqrt(static_cast<double>(question.shape.query[3]));
  if (!plan->run(library_.handle(), call.in, call.out, scale, given ? call.out[always].data : nullptr)) {
    error_ = plan->error();
    call.error = error_.c_str();
  }
  ++runs_;
  return true;
}

}  // namespace ledger::cuda
