// node.h - a node of the autograd graph: what it saved, where its gradients go, and the rule that computes them.
//
// Source: PyTorch torch/csrc/autograd/{function.h, saved_variable.h}, torch/utils/checkpoint.py (_CheckpointFrame).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/trace/tensor.h"

namespace ledger {

inline constexpr std::size_t kMaxEdges = 4;
inline constexpr std::size_t kMaxOutputs = 3;
inline constexpr std::size_t kMaxSaved = 8;  // biased attention: q, k, v, bias, out, logsumexp and two random states

using Gradients = std::array<Tensor, kMaxEdges>;
using CheckpointOutputs = std::array<Tensor, kMaxOutputs>;

// Computes gradients of the node's inputs (`out`, by edge) from those of its outputs (`in`). Leave an entry empty where
// no gradient is needed or none flows.
using BackwardRule = void (*)(Node& node, const Gradients& in, Gradients& out);

// What a checkpointed region keeps besides its inputs: results that are not computed again.
struct Keep {
  bool every_other_product = false;
  bool attention = false, cudnn = false;   // cuDNN's kernel stands alone in lists
  bool sums = false;                       // of reduce-scatters
  bool needed_alone = false;               // compiled: nothing from which no saved tensor is computed
  bool largest = false, absolute = false;  // of float8 casts
  bool batched = true;                     // products, with every other one
  bool exchanged = false;                  // by all-to-alls
};

// Attention and every other matrix product: torchtitan's default selective checkpointing. Source: torchtitan
// distributed/activation_checkpoint.py, SelectiveAC; torch/_functorch/partitioners.py, get_default_op_list.
inline constexpr Keep kComputeIntensive{true, true, true, true};

// One checkpointed region (torch.utils.checkpoint). use_reentrant=False: saved tensors are dropped in forward and made
// again by running `recompute` when the first of them is asked for. use_reentrant=True: `region` runs without a graph
// in forward and again, with one, inside the backward of its own node.
//
// Selective checkpointing (torch/utils/checkpoint.py, create_selective_checkpoint_contexts): results of the operators
// on its list are kept in forward and handed out again instead of being computed.
struct CheckpointFrame {
  std::uint32_t refs = 0;
  std::uint32_t saved = 0;  // tensors packed in forward; recomputation stops after as many (early_stop)
  bool recomputed = false;
  bool autocast = false;
  Keep keep;
  NameId scope = 0;
  std::int32_t layer = -1;
  std::uint32_t products = 0;  // mm calls seen in this pass over the region
  std::size_t next_kept = 0;
  std::vector<Tensor> kept;                     // selective: results in the order of their making
  std::vector<std::uint32_t> kept_after;        // and how many tensors had been saved before each
  std::function<void()> recompute;              // holds the region's inputs
  std::function<Tensor(const Tensor&)> region;  // reentrant variant: run again on the detached input
  std::function<Tensor()> again;                // Tape::remake: makes one tensor, kept in `tensors` for who asks next
  std::vector<std::uint8_t> dropped;            // by slot: its node died before backward (a detached side computation)
  std::vector<Tensor> tensors;                  // by slot, each emptied when its node takes it
};

struct SavedTensor {
  Tensor tensor;                     // of a remade one the geometry alone
  CheckpointFrame* frame = nullptr;  // owned reference
  std::uint32_t slot = 0;
};

struct Edge {
  Node* node = nullptr;  // owned reference; null when that input needs no gradient
  std::uint8_t input_nr = 0;
};

struct OutputMeta {
  Shape shape;
  DType dtype = DType::f32;
};

// What every node uses comes first: a backward pass visits tens of thousands of them, each a few cache lines.
struct Node {
  std::uint32_t refs = 0;
  std::uint32_t dependencies = 0;  // engine state during one backward pass
  std::uint32_t visited = 0;       // number of the backward pass that counted it
  std::uint8_t edge_count = 0;
  std::uint8_t saved_count = 0;
  std::uint8_t output_count = 0;
  Category category = Category::activation_gradients;  // of what the rule allocates
  BackwardRule rule = nullptr;
  std::uint64_t sequence = 0;  // later nodes run first; accumulators before everything
  Tape* tape = nullptr;
  NameId scope = 0;
  std::int32_t layer = -1;
  std::int32_t hook = -1;  // a function of the tape's to call before the rule: a hook on its output's gradient
  DType input_dtype = DType::f32;
  Tensor variable;                   // accumulators: the leaf, kept alive by the graph as in PyTorch
  CheckpointFrame* frame = nullptr;  // owned reference; reentrant checkpoints only
  Gradients pending;                 // engine state
  std::array<Edge, kMaxEdges> edges;
  std::vector<Tensor> parts;  // of split_all: gradients of more outputs than `pending` has room for
  Attr attr;
  Shape input_shape;  // of the first input, for rules that restore it (view, slice)
  std::array<OutputMeta, kMaxOutputs> outputs;
  std::array<SavedTensor, kMaxSaved> saved;

  bool needs(std::size_t edge) const { return edge < edge_count && edges[edge].node != nullptr; }
};

}  // namespace ledger
