// ring_attention.h - attention of ranks that share sequences (context parallelism): keys and values of all pass through
// each, or heads are exchanged for tokens.
//
// Of n ranks number r has the pieces r and 2 n - 1 - r of the 2 n that a sequence is cut in, so that a causal mask
// leaves as much to do to each. Source: TransformerEngine pytorch/attention/dot_product_attention/context_parallel.py
// (AttnFuncWithCPAndKVP2P, AttnFuncWithCPAndKVAllGather, AttnFuncWithCPAndQKVOA2A), 2026; PyTorch
// torch/distributed/tensor/experimental/_attention.py
// (_templated_ring_attention), 2.6 to 2.10. All tensors are [b, n, s, d], whatever their order in memory.
#pragma once

#include "core/trace/operators.h"

namespace ledger {

struct Ring {
  std::uint64_t rank = 0, ranks = 1;
  std::uint64_t exchanging = 1;  // neighbours that exchange heads (a2a): 1 none, `ranks` all, else a2a+p2p
  bool cudnn = false;            // the kernel: cuDNN's, or else flash attention
  bool gathers = false;          // keys and values by an all-gather, or else from neighbour to neighbour
  double dropout = 0;
};

// q, k and v dense. Saves q, the keys and values that came last (of an all-gather its own), its part of the result, and
// the merged logsumexp.
Tensor te_ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Ring& ring);

// As many heads of keys as of queries. Saves q, k, v, the result and its logsumexp.
Tensor torch_ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Ring& ring);

// Of a tensor with all tokens along `dim`: the pieces of `rank` of `ranks`, in new memory, or in `into`.
Tensor own_pieces(const Tensor& whole, int dim, std::uint64_t rank, std::uint64_t ranks, OpKind op);
void copy_own_pieces(const Tensor& whole, int dim, std::uint64_t rank, std::uint64_t ranks, const Tensor& into);

}  // namespace ledger
