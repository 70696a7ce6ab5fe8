#include "core/training/megatron_buffers.h"

#include <algorithm>

#include "core/parallel/mesh_of.h"
#include "core/trace/strides.h"

namespace ledger {

MegatronBuffers::MegatronBuffers(Tape& tape, const ModelConfig& config, const Recipe& recipe, const MegatronRun& run)
    : tape_(tape), recipe_(recipe), run_(run), mesh_(mesh_of(recipe)) {
  const std::vector<bool>& sparse = config.moe.layers;
  const bool experts = std::find(sparse.begin(), sparse.end(), true) != sparse.end();
  buffers_.resize(experts ? 2 : 1);
  buffers_[0].ranks = times(recipe.dp, recipe.cp);
  buffers_[0].place = mesh_.data_place(run.rank);
  if (!experts) return;
  buffers_[1].experts = true;
  buffers_[1].ranks = mesh_.expert_data();
  buffers_[1].place = mesh_.expert_place(run.rank).data;
}

// DDP's hook: the gradient is added to the main one and given up.
void MegatronBuffers::add(const Tensor& parameter, PartsOf parts) {
  const std::size_t number = members_.size(), buffer = parts == PartsOf::expert ? 1 : 0;
  members_.push_back({parameter, buffer, buffers_[buffer].elements, parts});
  buffers_[buffer].elements = plus(buffers_[buffer].elements, parameter.shape().numel());
  tape_.after_accumulation(parameter, [this, number](Tensor& gradient) {
    const Member& member = members_[number];
    add_inplace(window(buffers_[member.buffer].gradients, member), gradient);
    gradient.reset();
  });
}

Tensor MegatronBuffers::of(const Tensor& parameter) const {
  if (!run_.gradient_accumulation_fusion) return Tensor();
  const Dim rows = parameter.dim(-2), columns = parameter.dim(-1);
  const auto fits = [&](const Dummy& d) { return d.rows.size == rows.size && d.columns.size == columns.size; };
  if (std::none_of(dummies_.begin(), dummies_.end(), fits)) dummies_.push_back({rows, columns, Tensor()});
  const Member& member = member_of(parameter);
  return window(buffers_[member.buffer].gradients, member);
}

void MegatronBuffers::before_backward() {
  if (!run_.keeps_dummy_gradients) return;
  const Tape::Scope scope(tape_, "dummy_wgrad", Tape::Scope::Below::nothing);
  const Tape::In in(tape_, Category::gradients);
  for (Dummy& d : dummies_) {
    if (!d.tensor) d.tensor = tape_.empty(OpKind::workspace, {d.rows, d.columns}, members_.front().parameter.dtype());
  }
}

Tensor MegatronBuffers::window(const Tensor& buffer, const Member& member) const {
  const Shape& shape = member.parameter.shape();
  return tape_.view_of(buffer, shape, contiguous_strides(shape), member.offset);
}

const MegatronBuffers::Member& MegatronBuffers::member_of(const Tensor& parameter) const {
  return members_[static_cast<std::size_t>(parameter.impl()->parameter)];
}

// --- shares
// ----------------------------------------------------------------------------------------------------------------

// The distributed optimizer: each rank of those with the same parameters, and those of one sequence with them, has
// main weights and moments of an equal share of all.
std::uint64_t MegatronBuffers::own_count(const Buffer& b) const {
  return shares(b) ? divide_up(b.elements, b.ranks) : b.elements;
}

std::uint64_t MegatronBuffers::own_first(const Buffer& b) const {
  return shares(b) ? times(own_count(b), b.place) : 0;
}

Shape MegatronBuffers::whole(const Buffer& b) const {
  return {{shares(b) ? times(own_count(b), b.ranks) : b.elements, Sym::none}};
}

Tensor MegatronBuffers::own_part(const Buffer& b, const Tensor& buffer) const {
  return tape_.view_of(buffer, share(b), {1}, own_first(b));
}

// What of `member` lies in this rank's share, on a buffer of that share.
Tensor MegatronBuffers::own_window(const Tensor& own, const Member& member) const {
  const Buffer& b = buffers_[member.buffer];
  const std::uint64_t first = own_first(b), end = plus(first, own_count(b));
  const std::uint64_t from = std::max(member.offset, first);
  const std::uint64_t to = std::min(plus(member.offset, member.parameter.shape().numel()), end);
  if (from >= to) return Tensor();
  return tape_.view_of(own, {{to - from, Sym::none}}, {1}, from - first);
}

// --- buffers
// ---------------------------------------------------------------------------------------------------------------

void MegatronBuffers::make() {
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    make_gradients(i);
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    make_main(i);
}

void MegatronBuffers::make_gradients(std::size_t number) {
  Buffer& b = buffers_[number];
  const DType gradients = recipe_.precision == Precision::megatron_bf16 ? DType::f32 : DType::bf16;
  if (shares(b)) {
    const Tape::Scope scope(tape_, b.experts ? "expert_param_data" : "param_data");
    const Tape::In in(tape_, Category::weights);
    b.parameters = zeros(tape_, whole(b), members_.front().parameter.dtype());
  }
  {
    const Tape::Scope scope(tape_, b.experts ? "expert_main_grads" : "main_grads");
    const Tape::In in(tape_, Category::gradients);
    b.gradients = zeros(tape_, whole(b), gradients);
  }
  if (shares(b)) move_parameters(number);
}

// param_data: parameters become views of one buffer, which an all-gather fills in place.
void MegatronBuffers::move_parameters(std::size_t number) {
  const Buffer& b = buffers_[number];
  for (const Member& member : members_) {
    if (member.buffer != number) continue;
    const Tensor view = window(b.parameters, member);
    copy_into(view, member.parameter);
    tape_.set_data(member.parameter, view);
    Parameter& parameter = parameter_of(member.parameter);
    parameter.storage = b.parameters.impl()->storage->id;
    parameter.elements = parameter.held = view.shape().numel();
    parameter.offset = member.offset;
  }
}

void MegatronBuffers::make_main(std::size_t number) {
  Buffer& b = buffers_[number];
  const Tape::Scope scope(tape_, b.experts ? "expert_main_params" : "main_params");
  const Tape::In in(tape_, Category::master_weights);
  b.main = tape_.empty(OpKind::to_copy, share(b), DType::f32);
  if (shares(b)) return copy_into(b.main, own_part(b, b.parameters));
  for (const Member& member : members_) {
    if (member.buffer == number) copy_into(window(b.main, member), member.parameter);
  }
}

void MegatronBuffers::zero() {
  for (Buffer& b : buffers_) {
    tape_.run(OpKind::zeros, {}, {&b.gradients});
    b.gradients_copy.reset();
  }
}

// --- gradients
// -------------------------------------------------------------------------------------------------------------

// finalize_model_grads. What is reduced and scattered stays in place. Megatron adds up the shared embedding's
// gradient last, which it gives a bucket of its own so that both of its stages cut it alike; here it comes first.
void MegatronBuffers::reduce(const SharedEmbedding& embedding) {
  if (embedding.parameter) {  // _allreduce_word_embedding_grads
    const Tape::Among ranks(tape_, RankGroup::pipeline_ends);
    all_reduce(window(buffers_.front().gradients, member_of(embedding.parameter)), ReduceOp::sum);
  }
  for (const Buffer& b : buffers_)
    reduce_over_data(b);
  sum_over_tensor_ranks();  // _allreduce_non_tensor_model_parallel_grads
}

// A mean over the ranks with other tokens. An expert has those of several ranks' tokens already: theirs are added up,
// each over all ranks with other tokens (expert_gradient_scaling_factor).
void MegatronBuffers::reduce_over_data(const Buffer& b) const {
  const std::uint64_t tokens = times(recipe_.dp, recipe_.cp);
  if (b.experts && tokens != 1)
    tape_.run(OpKind::mul_scalar, {&b.gradients}, {&b.gradients}, {1 / static_cast<double>(tokens), {}});
  if (b.ranks == 1) return;
  const ReduceOp op = b.experts ? ReduceOp::sum : ReduceOp::mean;
  const Tape::Among ranks(tape_, b.experts ? RankGroup::expert_data : RankGroup::data);
  if (!shares(b)) return all_reduce(b.gradients, op);
  const Tensor own = own_part(b, b.gradients);
  tape_.run(OpKind::reduce_scatter, {&b.gradients}, {&own}, {0, {static_cast<std::int64_t>(op), 0}});
}

// Flattened into one.
void MegatronBuffers::sum_over_tensor_ranks() {
  std::vector<Tensor> gradients;
  std::uint64_t total = 0;
  for (const Member& member : members_) {
    if (member.parts != PartsOf::tokens && member.parts != PartsOf::heads) continue;
    gradients.push_back(as_row(window(buffers_[member.buffer].gradients, member)));
    total = plus(total, gradients.back().shape().numel());
  }
  if (gradients.empty()) return;
  const Tape::In in(tape_, Category::communication);
  const Tensor flat = cat(gradients, 0, {total, Sym::none});
  {
    const Tape::Among ranks(tape_, RankGroup::tensor);
    all_reduce(flat, ReduceOp::sum);
  }
  std::uint64_t offset = 0;
  for (const Tensor& gradient : gradients) {
    copy_into(gradient, tape_.view_of(flat, gradient.shape(), {1}, offset));
    offset += gradient.shape().numel();
  }
}

// What every tensor-parallel rank has counts once, and so does an embedding that two stages have.
bool MegatronBuffers::counts(const Member& member, const SharedEmbedding& embedding) const {
  if (member.parts == PartsOf::expert) return true;
  const bool first_has_it = embedding.again && member.parameter.impl() == embedding.parameter.impl();
  const bool everywhere = recipe_.tp > 1 && parameter_of(member.parameter).cut.piece == 0;
  return !first_has_it && (!everywhere || mesh_.place(run_.rank, Axis::tensor) == 0);
}

// clip_grads.py, get_grad_norm_fp32. `kept`: of the fragments, until gradients are clipped.
Tensor MegatronBuffers::norm_of(std::size_t number, const Tensor& gradients, const SharedEmbedding& embedding,
                                std::vector<Tensor>& kept) const {
  const Buffer& b = buffers_[number];
  std::vector<Tensor> counted;
  for (const Member& member : members_) {
    if (member.buffer != number || !counts(member, embedding)) continue;
    Tensor own = own_window(gradients, member);
    if (own) counted.push_back(std::move(own));
  }
  kept.push_back(tape_.empty(OpKind::vector_norm, {{counted.size(), Sym::none}}, gradients.dtype()));
  const Tensor norms = kept.back();
  for (std::size_t i = 0; i < counted.size(); ++i) {
    const Tensor norm = tape_.view_of(norms, Shape{}, {}, i);
    tape_.run(OpKind::vector_norm, {&counted[i]}, {&norm});
  }
  Tensor total = vector_norm(norms);
  const RankGroup model = b.experts ? RankGroup::expert_model : RankGroup::model;
  const Tape::Among ranks(tape_, shares(b) ? RankGroup::everyone : model);
  all_reduce(total, ReduceOp::norm);
  return total;
}

// clip_grad_by_total_norm_fp32, of all parameters' norm (ChainedOptimizer).
void MegatronBuffers::clip(const std::vector<Tensor>& gradients, const SharedEmbedding& embedding) const {
  const Tape::Scope scope(tape_, "clip_grad_norm");
  const Tape::In in(tape_, Category::temporaries);
  std::vector<Tensor> fragments, norms;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    norms.push_back(norm_of(i, gradients[i], embedding, fragments));
  const Tensor total = norms.size() == 1 ? norms.front() : vector_norm(stack(norms, Sym::none));
  Tensor coefficient = reciprocal(total + 1e-6) * run_.max_grad_norm;
  coefficient = clamp_max(coefficient, 1.0);
  for (const Tensor& gradient : gradients)
    mul_inplace(gradient, coefficient);
}

// --- the step
// --------------------------------------------------------------------------------------------------------------

// The optimizer works in fp32: 16-bit gradients are copied. Moments are made in the first step.
void MegatronBuffers::step(const SharedEmbedding& embedding) {
  const Tape::NoGrad no_grad(tape_);
  const Tape::Scope scope(tape_, "optimizer");
  reduce(embedding);
  std::vector<Tensor> gradients;
  for (Buffer& b : buffers_) {
    gradients.push_back(own_part(b, b.gradients));
    if (b.gradients.dtype() == DType::f32) continue;
    const Tape::In in(tape_, Category::gradients);
    b.gradients_copy = tape_.empty(OpKind::to_copy, share(b), DType::f32);
    copy_into(b.gradients_copy, gradients.back());
    gradients.back() = b.gradients_copy;
  }
  if (run_.max_grad_norm > 0) clip(gradients, embedding);
  ++steps_;
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    update(i, gradients[i]);
}

void MegatronBuffers::update(std::size_t number, const Tensor& gradients) {
  Buffer& b = buffers_[number];
  {
    const Tape::In in(tape_, Category::optimizer_states);
    for (Tensor* moment : {&b.exp_avg, &b.exp_avg_sq}) {
      if (!*moment) *moment = zeros(tape_, share(b), DType::f32);
    }
  }
  tape_.run(OpKind::adamw, {&gradients}, {&b.main, &b.exp_avg, &b.exp_avg_sq}, {0, {steps_, 0}});
  update_parameters(number);
}

void MegatronBuffers::update_parameters(std::size_t number) {
  const Buffer& b = buffers_[number];
  if (!shares(b)) {
    for (const Member& member : members_) {
      if (member.buffer == number) copy_into(member.parameter, window(b.main, member));
    }
    return;
  }
  copy_into(own_part(b, b.parameters), b.main);
  const Tape::Among ranks(tape_, b.experts ? RankGroup::expert_data : RankGroup::data);
  tape_.run(OpKind::all_gather, {}, {&b.parameters});
}

}  // namespace ledger
