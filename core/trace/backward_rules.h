// backward_rules.h - one rule per differentiable operator; see backward_rules.cc for the formulas.
#pragma once

#include "core/trace/node.h"

namespace ledger::backward {

void view(Node& node, const Gradients& in, Gradients& out);
void transpose(Node& node, const Gradients& in, Gradients& out);
void slice(Node& node, const Gradients& in, Gradients& out);
void every_other(Node& node, const Gradients& in, Gradients& out);
void pass(Node& node, const Gradients& in, Gradients& out);
void add(Node& node, const Gradients& in, Gradients& out);
void mul(Node& node, const Gradients& in, Gradients& out);
void mul_scalar(Node& node, const Gradients& in, Gradients& out);
void div_scalar(Node& node, const Gradients& in, Gradients& out);
void neg(Node& node, const Gradients& in, Gradients& out);
void pow_scalar(Node& node, const Gradients& in, Gradients& out);
void rsqrt(Node& node, const Gradients& in, Gradients& out);
void silu(Node& node, const Gradients& in, Gradients& out);
void to_copy(Node& node, const Gradients& in, Gradients& out);
void mean(Node& node, const Gradients& in, Gradients& out);
void cat(Node& node, const Gradients& in, Gradients& out);
void split(Node& node, const Gradients& in, Gradients& out);
void mm(Node& node, const Gradients& in, Gradients& out);
void addmm(Node& node, const Gradients& in, Gradients& out);
void embedding(Node& node, const Gradients& in, Gradients& out);
void log_softmax(Node& node, const Gradients& in, Gradients& out);
void nll_loss(Node& node, const Gradients& in, Gradients& out);
void index_rows(Node& node, const Gradients& in, Gradients& out);
void never(Node& node, const Gradients& in, Gradients& out);  // of results that no loss depends on
void offloaded(Node& node, const Gradients& in, Gradients& out);
void hooked(Node& node, const Gradients& in, Gradients& out);
void reentrant(Node& node, const Gradients& in, Gradients& out);
void sub(Node& node, const Gradients& in, Gradients& out);
void div(Node& node, const Gradients& in, Gradients& out);
void bmm(Node& node, const Gradients& in, Gradients& out);
void baddbmm(Node& node, const Gradients& in, Gradients& out);
void softmax(Node& node, const Gradients& in, Gradients& out);
void dropout(Node& node, const Gradients& in, Gradients& out);
// Gradients of q, k and v, allocated like them, by flash attention's backward kernel or cuDNN's. `of`: the result's
// gradient, q, k, v, the result and its logsumexp; the last two may be those of more keys than k has.
using AttentionOperands = std::array<const Tensor*, 6>;
void attention_gradients(OpKind op, const AttentionOperands& of, Gradients& out, Attr attr);
void efficient_attention(Node& node, const Gradients& in, Gradients& out);
void cudnn_attention(Node& node, const Gradients& in, Gradients& out);
void flash_attention(Node& node, const Gradients& in, Gradients& out);

}  // namespace ledger::backward
