// operators.h - PyTorch's operators on symbolic tensors: what each allocates, saves for backward and computes there.
//
// Every function states the ATen operator it stands for by its name; broadcasting, type promotion and the strides of
// results follow ATen's TensorIterator. Autocast is applied where PyTorch's lists say so
// (aten/src/ATen/autocast_mode.h). Backward rules: tools/autograd/derivatives.yaml, written out in backward_rules.cc.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <vector>

#include "core/trace/tape.h"
#include "core/trace/window_grid.h"

namespace ledger {

// --- views: no memory, no run
// -----------------------------------------------------------------------------------------------
Tensor view(const Tensor& x,
            const Shape& shape);  // the caller knows it is possible (else a clone is made, as reshape does)
Tensor reshape(const Tensor& x, const Shape& shape);  // view where strides allow, else contiguous copy
Tensor transpose(const Tensor& x, int a, int b);
Tensor slice(const Tensor& x, int dim, std::uint64_t start, Dim length);
Tensor every_other(const Tensor& x, std::uint64_t start, Dim length);  // x[..., start::2]
Tensor unsqueeze(const Tensor& x, int dim);
Tensor expand(const Tensor& x, const Shape& shape);
Tensor alias(const Tensor& x);
// `count` views of `length` each, side by side along `dim`: one node, whose backward joins the gradients.
using Parts = std::array<Tensor, 3>;
Parts split(const Tensor& x, int dim, Dim length, std::size_t count);
Parts split(const Tensor& x, int dim, Dim first, Dim second);  // in two of these lengths
// In views of these lengths, of which each gets a gradient; or of length 1.
std::vector<Tensor> split_all(const Tensor& x, int dim, std::span<const Dim> lengths);
std::vector<Tensor> split_each(const Tensor& x, int dim);
Tensor contiguous(const Tensor& x);  // itself when it already is

// --- element-wise
// ------------------------------------------------------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, double b);
void add_inplace(const Tensor& a, const Tensor& b);  // only without grad
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, double b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor sqrt(const Tensor& a);                             // only without grad
void mul_inplace(const Tensor& a, const Tensor& scalar);  // only without grad
Tensor div(const Tensor& a, double b);
Tensor rsub(const Tensor& a, double b);  // b - a, only without grad
Tensor neg(const Tensor& a);
Tensor pow(const Tensor& a, double exponent);
Tensor rsqrt(const Tensor& a);
Tensor reciprocal(const Tensor& a);  // only without grad
Tensor floor(const Tensor& a);       // only without grad
Tensor log1p(const Tensor& a);       // only without grad
Tensor exp(const Tensor& a);         // only without grad
Tensor log(const Tensor& a);         // only without grad
Tensor clamp_max(const Tensor& a, double limit);
Tensor clamp(const Tensor& a, double limit);  // to -limit..limit
Tensor cos(const Tensor& a);                  // only without grad
Tensor sin(const Tensor& a);                  // only without grad
Tensor silu(const Tensor& a);
Tensor silu_backward(const Tensor& gradient, const Tensor& a);
Tensor gelu(const Tensor& a, bool tanh_approximation);
Tensor relu(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor sigmoid(const Tensor& a);
Tensor to(const Tensor& a, DType dtype);  // itself when it already is of that dtype
Tensor clone(const Tensor& a);            // keeps dense strides

// --- complex numbers, as pairs of fp32 along the last dimension (complex_ops.cc)
// --------------------------------------------------------------------------------------
Tensor polar(const Tensor& angles);                    // [.., n] -> [.., 2n], only without grad
Tensor complex_mul(const Tensor& a, const Tensor& b);  // b needs no gradient and broadcasts

// --- creation
// ----------------------------------------------------------------------------------------------------------------
Tensor ones_like(const Tensor& a);
Tensor zeros(Tape& tape, const Shape& shape, DType dtype);
Tensor ones(Tape& tape, const Shape& shape, DType dtype);
Tensor full(Tape& tape, const Shape& shape, double value, DType dtype);
Tensor zeros_like(const Tensor& a);
Tensor arange(Tape& tape, Dim length);
void copy_into(const Tensor& destination, const Tensor& source);  // only without grad
void all_reduce(const Tensor& tensor, ReduceOp reduction);        // in place, over all ranks; only without grad

// --- reductions and joins
// ------------------------------------------------------------------------------------------------------
Tensor mean_last(const Tensor& a);  // over the last dimension, kept with size 1
Tensor mean_all(const Tensor& a);   // a scalar
Tensor sum_to(const Tensor& a, const Shape& shape);
// `joined` names the size of dimension `dim` of the result; two halves of a head make a whole one.
Tensor cat(const Tensor& a, const Tensor& b, int dim, Sym joined = Sym::none);
Tensor cat(const Tensor& a, int dim);                                                // of a list of one: a copy
Tensor cat(const Tensor& a, const Tensor& b, const Tensor& c, int dim, Sym joined);  // only without grad
Tensor cat(std::span<const Tensor> parts, int dim, Dim joined);                      // only without grad
Tensor cat_all(std::span<const Tensor> parts, int dim, Dim joined);                  // parts of one dtype
Tensor argmax_last(const Tensor& a);                                                 // only without grad
Tensor cumsum_last(const Tensor& a);                                                 // only without grad
Tensor pad_right(const Tensor& a, Dim padded, std::int64_t value);
Tensor stack(std::span<const Tensor> scalars, Sym sym);  // only without grad
Tensor vector_norm(const Tensor& a);                     // only without grad
Tensor row_norm(const Tensor& a);                        // [m, n] -> [m], only without grad
Tensor eye(Tape& tape, Dim n, DType dtype);

// --- matrices
// ------------------------------------------------------------------------------------------------------------------
Tensor mm(const Tensor& a, const Tensor& b);
Tensor addmm(const Tensor& bias, const Tensor& a, const Tensor& b);
Tensor bmm(const Tensor& a, const Tensor& b);
// self + alpha a b; `self` needs no gradient and broadcasts.
Tensor baddbmm(const Tensor& self, const Tensor& a, const Tensor& b, double alpha);
Tensor matmul(const Tensor& a, const Tensor& b);  // [b,n,i,k] x [b,n,k,j], through bmm as ATen folds it
// y = x W^T (+ bias); x [..., in], W [out, in]. Source: aten/src/ATen/native/Linear.cpp.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);
// The same as x @ W.T + bias, which autocast casts at every use. Source: models/falcon/modeling_falcon.py,
// FalconLinear.
Tensor linear_by_matmul(const Tensor& x, const Tensor& weight, const Tensor& bias);
// y = x W + bias; W [in, out]. Source: transformers pytorch_utils.py, Conv1D.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias);

// --- tables, loss, attention
// -----------------------------------------------------------------------------------------------------
Tensor embedding(const Tensor& weight, const Tensor& ids);
// nn.LayerNorm over the last dimension; weight and bias may be empty. Statistics are fp32 as the CUDA kernel's.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
// nn.RMSNorm over the last dimension where PyTorch has a kernel for it (2.9), rstd in fp32.
Tensor fused_rms_norm(const Tensor& x, const Tensor& weight, double eps);
// The dense copy that a library's kernel makes of an operand which is none, for the length of its call; or nothing.
Tensor dense_copy(const Tensor& a);
Tensor log_softmax(const Tensor& a);
enum class Reduction : std::uint8_t { mean, sum };
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, Reduction reduction = Reduction::mean);
Tensor not_equal(const Tensor& a, std::int64_t value);            // boolean
Tensor count_true(const Tensor& mask);                            // int64 scalar
Tensor index_rows(const Tensor& a, const Tensor& order);          // a[order], order int64 [n]
Tensor bookkeeping(Tape& tape, const Shape& shape, DType dtype);  // memory whose values nothing here reads
Tensor softmax(const Tensor& a, DType dtype);  // over the last dimension; `dtype` as in F.softmax(..., dtype=)
// Math attention's softmax, whose fully masked rows become 0. Source: aten/src/ATen/native/transformers/attention.cpp.
Tensor safe_softmax(const Tensor& a);
Tensor dropout(const Tensor& a, double p);  // native_dropout in training mode; itself when p is 0
// Boolean [.., s, keys]: of the keys, `before` come before the queries' own; 0 for no window.
Tensor causal_mask(Tape& tape, const Shape& shape, std::uint64_t before = 0, std::uint64_t window = 0);
Tensor chunked_mask(Tape& tape, const Shape& shape, std::uint64_t chunk);  // causal within chunks
Tensor additive_mask(const Tensor& mask, DType dtype, bool infinite);      // only without grad
// Of the fused kernels' operators, as ops.h has it.
Attr attention_attr(double scale, double dropout, bool causal);
// Memory-efficient attention, causal, as many key/value heads as query heads. Source: attention.cu.
// With a `bias` on the scores it is the bias that hides keys; only without grad.
Tensor efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale = 0, double dropout = 0,
                           const Tensor& bias = Tensor(), bool causal = true);
// All take the scale of the scores (0: 1/sqrt(d)) and the dropout of the probabilities, which costs no memory: masks
// are drawn again in backward. Causal flash attention: q [b,nh,s,d], k and v [b,nkv,s,d]. Source:
// aten/src/ATen/native/transformers/cuda/flash_attn.
Tensor flash_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale = 0, double dropout = 0,
                       bool causal = true);
// The same by cuDNN's graph. Source: aten/src/ATen/native/cudnn/MHA.cpp. Its workspace is cuDNN's to choose and not
// modelled (docs/not-modelled.md, cudnn_workspace).
Tensor cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v, double scale = 0, double dropout = 0,
                       bool causal = true);

// --- routing (routing_ops.cc)
// --------------------------------------------------------------------------------------------------
struct TopK {
  Tensor values, places;  // [T, k]; int64
};
TopK topk(const Tensor& a, Dim k);  // over the last dimension
TopK max_last(const Tensor& a);     // over the last dimension, kept with size 1
Tensor amax(const Tensor& a);       // the same without places, only without grad
// By places int64 [T, k] of the rows of [T, E]; scatter_value() works in place and only without grad.
Tensor gather(const Tensor& a, const Tensor& places);
void scatter_value(const Tensor& a, const Tensor& places, double value);
Tensor scatter_inplace(const Tensor& a, const Tensor& places, const Tensor& source);  // gradients to the source only
Tensor logical_not(const Tensor& a);
Tensor masked_fill(const Tensor& a, const Tensor& mask, double value);
struct Sorted {
  Tensor values, places;  // int64
};
Sorted sort(const Tensor& a);                           // int64 [n], stable
Tensor floor_divide(const Tensor& a, std::uint64_t b);  // int64
Tensor at_least(const Tensor& a, std::uint64_t limit);  // boolean
Tensor less(const Tensor& a, std::uint64_t limit);      // boolean
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor histogram(const Tensor& a, Dim bins);                                            // int32 [n] -> [bins]
void index_put(const Tensor& destination, const Tensor& places, const Tensor& source);  // only without grad
// These two work in place: the result is another handle on `a`'s memory, and `a`'s value is gone.
Tensor masked_fill_inplace(const Tensor& a, const Tensor& mask, double value);
Tensor div_inplace(const Tensor& a, const Tensor& b);
Tensor add_onto(const Tensor& a, const Tensor& b);           // as these two
Tensor take(const Tensor& a, int dim, std::uint64_t index);  // a[..., [index], ...]: a copy
Tensor sum_over(const Tensor& a, int dim, bool keep);        // that dimension goes, or stays with size 1
// Rows [R, K] in groups that end at `ends` int32 [E], each by its matrix of [E, K, N]: torch._grouped_mm.
Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& ends);

// --- images (image_ops.cc)
// -------------------------------------------------------------------------------------------------------
// x [n,c,...] by filters [o,c,k...] that do not overlap, perhaps plus bias [o]; x needs no gradient.
Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias);
Tensor equal(const Tensor& a, std::int64_t value);  // boolean
// a [b,s,h] with the rows where `mask` [b,s,1] holds taken from `source` [n,h].
Tensor masked_scatter(const Tensor& a, const Tensor& mask, const Tensor& source);
Tensor unfold(const Tensor& x, std::uint64_t side);  // [n,c,H,W] to [n,c k k,patches]; x needs no gradient
// Complex [1,p,1,d/2] as pairs: turns of an image's places by row and column, of its class token at the end none.
Tensor image_turns(Tape& tape, std::uint64_t side, const Shape& shape, double theta);
Tensor avg_pool(const Tensor& a, std::uint64_t side);  // [n,c,H,W], squares of that side
Tensor join_images(const Tensor& a);                   // torch.cat(list(a)): [n,t,h] -> [n t,h]
Tensor image_blocks(const Tensor& mask);               // [b,s], only without grad
enum class WindowOrder : std::uint8_t { together, back };
// int64 [n], in host memory between its uses: the order of images' tokens in windows, or the one they had.
Tensor window_order(Tape& tape, Dim tokens, const WindowGrid& grid, WindowOrder order);
// Flash attention on q, k and v [1,nh,n,d], of several sequences one after the other that end at `ends` int32; not
// causal. Source: flash-attention flash_attn_interface.py, FlashAttnVarlenFunc; csrc/flash_attn/flash_api.cpp.
Tensor packed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ends, const WindowGrid& grid);
// Boolean [b,1,s,s]: causal, within a window where it is not 0, and within each of image_blocks()'s blocks both ways.
Tensor causal_or_block_mask(const Tensor& blocks, std::uint64_t window);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator+(const Tensor& a, double b) {
  return add(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator*(double a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator*(const Tensor& a, double b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, double b) {
  return div(a, b);
}

}  // namespace ledger
