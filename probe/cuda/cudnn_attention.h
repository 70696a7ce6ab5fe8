// cudnn_attention.h - causal attention as graphs of cuDNN's operations, forward and backward, grouped heads included.
//
// cuDNN knows attention by the shape of the graph, so the operations and their order are those of cudnn-frontend's
// composite nodes (include/cudnn_frontend/node/scaled_dot_product_flash_attention.h, softmax.h). Deterministic mode is
// never asked for: on Hopper it takes a workspace that is quadratic in the sequence.
#pragma once

#include <map>

#include "probe/cuda/cudnn.h"
#include "probe/device/call.h"
#include "probe/measured_device.h"

namespace ledger::cuda {

// Queries [b, n, s, d], keys and values [b, nkv, s, d], in elements; strides of what is read and written.
struct AttentionShape {
  DType dtype = DType::bf16;
  Four query{}, key{};
  Four of_query{}, of_key{}, of_value{}, of_result{};       // strides
  Four of_gradient{}, of_dquery{}, of_dkey{}, of_dvalue{};  // backward only
  bool backward = false;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 sees a 0 in it
  auto operator<=>(const AttentionShape&) const = default;
};

// Of a trace's operator, as ops.h has it. nullptr in `refusal`, or why cuDNN is not asked: a sentence.
struct AttentionQuestion {
  AttentionShape shape;
  const char* refusal = nullptr;
};
AttentionQuestion attention_question(OpKind op, std::span<const device::Operand> in,
                                     std::span<const device::Operand> out, const Attr& attr, std::size_t version);

class CudnnAttention {
 public:
  CudnnAttention(const Cudnn& library, const AttentionShape& shape);

  // Finalises the graph; `handle` may be null: then there is no plan.
  bool finish(cudnn::Handle handle) { return graph_.finish(handle); }
  bool plan(cudnn::Handle handle) { return graph_.plan(handle); }
  const std::string& error() const { return graph_.error(); }
  std::int64_t engines() { return graph_.engines(); }

  // Of the plan, with what the graph keeps between its parts.
  Bytes scratch_bytes() const { return plus(round_up(graph_.workspace_bytes(), kAlignment), kept_bytes_); }
  bool run(cudnn::Handle handle, std::span<const device::Operand> in, std::span<const device::Operand> out,
           double scale, std::byte* scratch);

 private:
  static constexpr Bytes kAlignment = 256;
  void forward();
  void backward();
  CudnnGraph::Id masked(CudnnGraph::Id scores);
  CudnnGraph::Id io(const Four& sizes, const Four& strides);
  CudnnGraph::Id kept(const Four& sizes, Bytes& bytes);

  AttentionShape shape_;
  cudnn::DataType type_;
  CudnnGraph graph_;
  Bytes kept_bytes_ = 0, accumulator_bytes_ = 0;
  std::vector<CudnnGraph::Id> operands_;  // in the order of the operator's in, then its out
  CudnnGraph::Id scale_ = 0, lowest_ = 0, one_ = 0, accumulator_ = 0, row_sums_ = 0;
};

class CudnnAttentions;

// Plans for all of a trace's attention, and the most scratch memory that one of them wants.
AttentionScratch plan_attention(CudnnAttentions& library, const Trace& trace);

// Plans by shape, for the device's kernels.
class CudnnAttentions : public device::AttentionLibrary {
 public:
  // What is missing, or "". Without it every call is declined.
  std::string open(void* stream);
  bool attend(device::Call& call) override;
  // Of its plan; nullopt where there is none, for last_refusal().
  std::optional<Bytes> scratch_bytes(OpKind op, std::span<const device::Operand> in,
                                     std::span<const device::Operand> out, const Attr& attr);
  std::size_t version() const { return library_.version(); }
  std::uint64_t runs() const { return runs_; }
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  CudnnAttention* plan_for(const AttentionQuestion& question);

  Cudnn library_;
  std::map<AttentionShape, std::unique_ptr<CudnnAttention>> plans_;  // null: no engine takes it
  std::string last_refusal_, error_;
  std::uint64_t runs_ = 0;
};

}  // namespace ledger::cuda
