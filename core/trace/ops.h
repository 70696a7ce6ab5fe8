// ops.h - the operators: one row each, forward, backward and optimizer kernels alike.
//
// A row is all that the rest of the system knows of an operator: its kind, the PyTorch (ATen) name that a user would
// see in a profiler, and what it computes. The tape (tape.h) adds what is saved for backward; an executor adds a kernel
// per kind. Views (transpose, slice, expand, view) are no operators: they allocate nothing and run nothing.
//
// Notation: in0.. are the inputs, out0.. the outputs, a is Run::attr. Unless said otherwise, element-wise operators
// broadcast by NumPy's rules, compute in the output's dtype (fp32 for 16-bit floats) and round once when storing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ledger {

// clang-format off
#define LEDGER_OPS(X) \
  /* loading and creation */ \
  X(load_parameter, "param")            /* out0 = what this rank holds of parameter number a.i[0] of Trace::parameters, initialised by its name; 0 behind its end */ \
  X(load_buffer, "buffer")              /* out0 = rotary inverse frequencies, fp32 [d/2]: theta^(-2i/d), theta = a.x, scaled as Trace::rope says unless a.i[0] = 1 */ \
  X(load_constant, "buffer")            /* out0 = a.x, a scalar */ \
  X(sinusoids, "buffer")                /* out0[p,j] fp32 [P,n]: the sine of p f_j for j < n/2, then the cosine; f_j = 10000^(-2 j / n) */ \
  X(alibi_slopes, "pow.Scalar")         /* out0[n] fp32: the slopes of ALiBi for n heads, 2^(-8 i / n) where n is a power of two, else those of the next lower one and every other one of the next higher */ \
  X(relative_buckets, "where.self")     /* out0[q,k] int64 = T5's bucket of the distance k - q: of n = a.i[0] buckets, where a.x = 1, the upper half is for keys that come after; of the rest half are for one distance each and the others grow by the logarithm up to a.i[1] tokens; where a.x = 0 keys that come after have bucket 0 */ \
  X(load_tokens, "input")               /* out0 = token ids, int64 [b,s], or as many numbers of another dtype; a.x: of which micro-batch; with a.i[0] = 2^32 n + t each row begins with n images, one other token and t times the id a.i[1] each, which then stands nowhere else */ \
  X(load_values, "input")               /* out0 = input features of a plain stack, uniform in [-1,1) */ \
  X(arange, "arange")                   /* out0[i] = i, int64 */ \
  X(ones_like, "ones_like")             /* out0 = 1 */ \
  X(zeros, "zeros")                     /* out0 = 0 */ \
  X(full, "full")                       /* out0 = a.x */ \
  X(cumsum, "cumsum")                   /* out0 = running sums of in0 along the last dimension */ \
  X(zeros_like, "zeros_like")           /* out0 = 0, an optimizer state */ \
  X(workspace, "workspace")             /* out0: uninitialised scratch memory of a library call; nothing is computed */ \
  /* collectives, as one of n ranks of the run's group (Run::group) sees them; a part is what one rank has, a shard what one rank has of one parameter. a.i[0] of the two that reduce: ReduceOp */ \
  X(gather_copy_in, "all_gather_copy_in")      /* this rank's part of out0 = in0.. one after the other, in out0's dtype; out0 has n parts */ \
  X(all_gather, "_allgather_base_")            /* out0 = in0 of all ranks, by rank; without in0 this rank's part of out0 is in place already */ \
  X(gather_copy_out, "split_with_sizes_copy")  /* in0 has n parts; out0.. = parameters, whose shards stand side by side in each part from element a.i[0] on; a.i[1] = 1: cut flat, else along the first dimension; the last may be padded */ \
  X(reduce_copy_in, "chunk_cat")               /* out0 has n parts; each = the rank's shards of in0.. side by side, padded with 0; a.i[1] as above */ \
  X(reduce_scatter, "_reduce_scatter_base_")   /* out0 = this rank's part of in0, reduced over all ranks; it may lie in in0 */ \
  X(all_reduce, "allreduce_")                  /* out0 = in0 reduced over all ranks, in place */ \
  X(send, "send")                              /* in0 to rank a.i[0] of the group, with tag a.i[1]; what is sent may be used again at once */ \
  X(all_to_all, "alltoall_base")               /* in0 and out0 have as many equal parts as ranks: part r of in0 goes to rank r, part r of out0 came from it */ \
  X(receive, "recv_")                          /* out0 = what rank a.i[0] of the group sent with tag a.i[1], message by message */ \
  /* element-wise */ \
  X(to_copy, "_to_copy")                /* out0 = in0 in out0's dtype */ \
  X(clone, "clone")                     /* out0 = in0, same dtype, out0's own strides */ \
  X(copy_into, "copy_")                 /* out0 = in0, out0 is a view of an older storage */ \
  X(copy_to_host, "_to_copy")           /* in0 to host memory number a.i[0]; nothing on the GPU is written */ \
  X(copy_from_host, "_to_copy")         /* out0 = host memory number a.i[0], which is given up */ \
  X(add, "add.Tensor")                  /* out0 = in0 + in1 */ \
  X(add_inplace, "add_.Tensor")         /* out0 = out0 + in1 (in0 is out0's view) */ \
  X(add_scalar, "add.Scalar")           /* out0 = in0 + a.x */ \
  X(mul, "mul.Tensor")                  /* out0 = in0 * in1; mixed dtypes promote: out0's dtype is the wider */ \
  X(mul_scalar, "mul.Scalar")           /* out0 = in0 * a.x */ \
  X(mul_inplace, "_foreach_mul_")       /* out0 = out0 * in1 (in0 is out0's view, in1 a scalar tensor) */ \
  X(div_scalar, "div.Scalar")           /* out0 = in0 / a.x */ \
  X(rsub_scalar, "rsub.Scalar")         /* out0 = a.x - in0 */ \
  X(neg, "neg")                         /* out0 = -in0 */ \
  X(pow_scalar, "pow.Tensor_Scalar")    /* out0 = in0 ^ a.x */ \
  X(rsqrt, "rsqrt")                     /* out0 = 1 / sqrt(in0) */ \
  X(reciprocal, "reciprocal")           /* out0 = 1 / in0 */ \
  X(clamp_max, "clamp")                 /* out0 = min(in0, a.x); where a.i[0] = 1 no less than -a.x */ \
  X(outside, "le.Scalar")               /* out0 = in0 > a.x, where a.i[0] = 1 also in0 < -a.x; boolean: what clamp cut off */ \
  X(cos, "cos")                         /* out0 = cos(in0) */ \
  X(sin, "sin")                         /* out0 = sin(in0) */ \
  X(floor, "floor")                     /* out0 = in0 rounded down */ \
  X(log1p, "log1p")                     /* out0 = log(1 + in0) */ \
  X(exp, "exp")                         /* out0 = e^in0 */ \
  X(log, "log")                         /* out0 = log(in0) */ \
  X(log_sigmoid, "log_sigmoid_forward") /* out0 = -log(1 + exp(-in0)) */ \
  X(logaddexp, "logaddexp")             /* out0 = log(exp(in0) + exp(in1)) */ \
  X(polar, "polar")                     /* in0[..,n] angles; out0[..,2n]: the cosine and sine of each side by side, a complex number */ \
  X(complex_mul, "mul.Tensor")          /* out0 = in0 * in1, complex numbers as pairs along the last dimension; a.i[0] = 1: times the conjugate of in1 */ \
  X(silu, "silu")                       /* out0 = in0 * sigmoid(in0) */ \
  X(sub, "sub.Tensor")                  /* out0 = in0 - in1 */ \
  X(div, "div.Tensor")                  /* out0 = in0 / in1 */ \
  X(sqrt, "sqrt")                       /* out0 = sqrt(in0) */ \
  X(foreach_sqrt, "_foreach_sqrt")      /* out0 = sqrt(in0), one tensor of a list that lives together */ \
  X(dropout, "native_dropout")          /* out0 = in0 * out1 * (1 / (1 - a.x)); out1 = bool mask, true with probability 1 - a.x. Drawn anew in every scope, layer and forward pass; a recomputation repeats the mask of its forward pass */ \
  X(dropout_backward, "native_dropout_backward") /* out0 = in0 * in1 * (1 / (1 - a.x)); in1 = mask */ \
  X(gelu, "gelu")                       /* out0 = in0 * Phi(in0), or its tanh approximation where a.i[0] = 1 */ \
  X(gelu_backward, "gelu_backward")     /* out0 = in0 * d gelu(x)/dx at x = in1; in0 is the gradient; a as gelu's */ \
  X(relu, "relu")                       /* out0 = max(in0, 0) */ \
  X(threshold_backward, "threshold_backward") /* out0 = in0 where in1 > 0, else 0; in0 gradient, in1 relu's result */ \
  X(tanh, "tanh")                       /* out0 = tanh(in0) */ \
  X(tanh_backward, "tanh_backward")     /* out0 = in0 * (1 - in1^2); in0 gradient, in1 tanh's result */ \
  X(layer_norm, "native_layer_norm")    /* in0[..,h], perhaps weight and bias[h]; out1 = mean, out2 = 1 / sqrt(variance + a.x), both [..,1]; out0 = (in0 - out1) * out2 * weight + bias */ \
  X(layer_norm_backward, "native_layer_norm_backward") /* in gradient, x, mean, rstd, perhaps weight; out0 = dx, perhaps out1 = dweight, out2 = dbias */ \
  X(rms_norm, "_fused_rms_norm")        /* in0[..,h], in1 = weight[h]; out1 = 1 / sqrt(mean of squares + a.x), [..,1]; out0 = in0 * out1 * (a.i[0] + in1) */ \
  X(rms_norm_backward, "_fused_rms_norm_backward") /* in gradient, x, rstd, weight, to which a.i[0] is added; out0 = dx, perhaps in the gradient's place, out1 = dweight */ \
  X(silu_backward, "silu_backward")     /* out0 = in0 * d silu(x)/dx at x = in1; in0 is the gradient */ \
  /* reductions and shapes */ \
  X(mean, "mean")                       /* out0 = mean of in0 over every dimension where out0's size is 1 (same rank), or over all of it (out0 rank 0) */ \
  X(sum, "sum")                         /* out0 = in0 summed to out0's shape: leading dimensions that out0 lacks, and those where it has size 1 */ \
  X(cat, "cat")                         /* out0 = in0, in1, ... joined along dimension a.i[0] */ \
  X(pad_right, "constant_pad_nd")       /* out0 = in0 with a column of the integer a.i[0] added at the end of the last dimension, once for each column that out0 has more */ \
  X(argmax, "argmax")                   /* out0[..] int64 = place of the largest of in0 along the last dimension, the first of equals */ \
  X(stack, "stack")                     /* out0[i] = in_i, scalars */ \
  /* matrices */ \
  X(eye, "eye")                         /* out0[n,n] = identity */ \
  X(mm, "mm")                           /* out0[M,N] = in0[M,K] in1[K,N], accumulated in fp32 (fp64 for fp64); operands may be transposed views */ \
  X(addmm, "addmm")                     /* out0[M,N] = in0[N] + in1[M,K] in2[K,N] */ \
  X(baddbmm, "baddbmm")                 /* out0[B,M,N] = in0 (broadcast) + a.x in1[B,M,K] in2[B,K,N] */ \
  X(bmm, "bmm")                         /* out0[B,M,N] = in0[B,M,K] in1[B,K,N] */ \
  /* tables */ \
  X(embedding, "embedding")             /* out0[...,h] = rows in1[...] of in0[V,h] */ \
  X(embedding_backward, "embedding_dense_backward") /* out0[V,h] = 0; out0[in1[t]] += in0[t]; in0 is the gradient */ \
  /* softmax and attention pieces */ \
  X(softmax, "_softmax")                /* out0 = softmax of in0 (a.x times in0, but for 0) over the last dimension; a.i[0]: of row r of the last two the first r + 1 alone, the rest 0; rows that are wholly -inf become NaN (safe softmax clears them with zero_masked_rows) */ \
  X(softmax_backward, "_softmax_backward_data") /* out0 = in1 * (in0 - sum(in0 * in1)) per row, times a.x but for 0; in0 gradient, in1 softmax */ \
  X(causal_mask, "tril")                /* out0[..,i,j] = j <= i + a.i[0], and with a window a.i[1] > 0 also j > i + a.i[0] - a.i[1], with chunks of -a.i[1] > 0 only where both lie in one; with in0[b,j] int64 also wherever in0[b,i] = in0[b,j] is not negative; boolean */ \
  X(additive_mask, "where.self")        /* out0 = 0 where in0 holds, else the lowest finite number of out0's dtype (a.x = 0) or -inf (a.x = 1) */ \
  X(is_masked, "eq.Scalar")             /* out0 = in0 == -inf, boolean */ \
  X(all, "all.dim")                     /* out0[..,1] = every element of in0 along the last dimension holds, boolean */ \
  X(zero_masked_rows, "where.self")     /* out0 = in1 with the rows where in0[..,1] holds set to 0 */ \
  /* loss */ \
  X(log_softmax, "_log_softmax")        /* out0 = in0 - max - log(sum(exp(in0 - max))) over the last dimension */ \
  X(log_softmax_backward, "_log_softmax_backward_data") /* out0 = in0 - exp(in1) * sum(in0) per row; in0 gradient, in1 log_softmax */ \
  X(nll_loss, "nll_loss_forward")       /* in0[T,V], in1[T] int64; out0 = mean (a.i[0] = 1: sum) of -in0[t,in1[t]] over targets that are not -100; out1 = their number (total_weight), in in0's dtype */ \
  X(nll_loss_backward, "nll_loss_backward") /* in0 gradient (scalar), in1[T] targets, in2 total_weight; out0[T,V] = 0, out0[t,in1[t]] = -in0/in2 (a.i[0] = 1: -in0) */ \
  X(not_equal, "ne.Scalar")             /* out0 = in0 != a.i[0], boolean; in0 int64 */ \
  X(equal, "eq.Scalar")                 /* out0 = in0 == a.i[0], boolean; in0 int64 */ \
  X(sort_true_first, "sort.stable")     /* in0[n] 0 or 1, int8; out0 = in0 with the ones first, out1 int64 = where each stood; stable */ \
  X(index_rows, "index.Tensor")         /* out0[i,...] = in0[in1[i],...]; in1 int64 */ \
  X(index_rows_backward, "index_put_")  /* out0 = 0; out0[in1[i],...] += in0[i,...] */ \
  /* routing tokens to experts */ \
  X(topk, "topk")                       /* out0[T,k] = the k = a.i[0] largest of each row of in0[T,E], largest first and of equals the first; out1 int64 = their places */ \
  X(max_last, "max.dim")                /* in0[T,E]; out0[T,1] = the largest of each row, the first of equals; out1 int64 = its place */ \
  X(amax, "amax")                       /* in0[T,E]; out0[T,1] = the largest of each row */ \
  X(gather, "gather")                   /* out0[t,j] = in0[t,in1[t,j]]; in1 int64 [T,k], no place twice in a row */ \
  X(gather_backward, "scatter_add")     /* as topk_backward */ \
  X(scatter_source, "scatter_.src")     /* out0[t,in1[t,j]] = in0[t,j], in place; in1 int64 [T,k], no place twice in a row */ \
  X(scatter_value, "scatter_.value")    /* in0 int64 [T,k]; out0[t,in0[t,j]] = a.x, in place */ \
  X(logical_not, "bitwise_not")         /* out0 = not in0; boolean */ \
  X(topk_backward, "scatter")           /* in0 gradient [T,k], in1 = topk's places; out0[T,E] = 0; out0[t,in1[t,j]] = in0[t,j] */ \
  X(sort, "sort")                       /* in0[n] int64; out0 = in0 ascending, out1 int64 = where each stood; stable */ \
  X(floor_divide, "floor_divide")       /* out0 = in0 / a.i[0], rounded down; int64 */ \
  X(remainder, "remainder.Scalar")      /* out0 = in0 modulo a.i[0]; int64, never negative */ \
  X(experts_in_turn, "topk")            /* out0 int64 [T,k]; out0[t,j] = (t / a.i[1] * k + j) modulo a.i[0]: as many tokens for each of a.i[0] experts as for the next, the same for the a.i[1] sequences of a batch */ \
  X(histc, "histc")                     /* in0[n] int32; out0[i] = how many of in0 are i */ \
  X(at_least, "ge.Scalar")              /* out0 = in0 >= a.i[0], boolean; in0 int64 */ \
  X(less, "lt.Scalar")                  /* out0 = in0 < a.i[0], boolean; in0 int64 */ \
  X(logical_or, "bitwise_or.Tensor")    /* out0 = in0 or in1; boolean */ \
  X(masked_fill, "masked_fill")         /* out0 = in0, but a.x where in1 holds */ \
  X(index_put, "index_put_")            /* out0[in1[i],...] = in0[i,...], in place; in1 int64 */ \
  X(grouped_mm, "_grouped_mm")          /* in2[E] int32: where each group of rows ends. in1[E,K,N]: out0[R,N] = in0[R,K] in1[e], e the row's group. in1[R,N]: out0[E,M,N], out0[e] = in0[M,R] in1 over the group's part of R */ \
  X(div_inplace, "div_.Tensor")         /* out0 = out0 / in1 (in0 is out0's view) */ \
  X(sigmoid, "sigmoid")                 /* out0 = 1 / (1 + exp(-in0)) */ \
  X(sigmoid_backward, "sigmoid_backward") /* out0 = in0 * (1 - in1) * in1; in0 gradient, in1 sigmoid's result */ \
  X(bookkeeping, "bookkeeping")         /* out0.. = 0: counters, locks, sort keys and metrics whose values nothing here reads */ \
  X(liger_cross_entropy, "liger_cross_entropy_kernel") /* in0[n,V] logits, in1[n] targets, in2[T] the targets of all chunks, N of them not -100; out1[n] fp32 = -log softmax(in0)[in1] / N; in place out0 = in0 := (softmax(in0) - onehot(in1)) / N; both 0 where a target is -100 */ \
  X(cut_positions, "nonzero")           /* in0[b,s] labels; out0 int64 = t = i s + j for every j < s-1 whose label in0[i,j+1] is not -100 */ \
  X(cut_logsumexp, "_cce_lse_forward_kernel") /* in0[T,h] e, in1[V,h] c, in2[n] positions; out0[n] fp32 = logsumexp over v of e[in2[i]] . c[v]; out1.. fp32[V] = mean logits when present, 0 here: they only order the backward pass */ \
  X(cut_neg_dot, "_indexed_neg_dot_forward_kernel") /* in0 e, in1 c, in2 positions, in3[T] labels; out0[n] fp32 = -e[in2[i]] . c[in3[in2[i]+1]] */ \
  X(cut_backward, "_cce_backward_kernel") /* in0 gradient (scalar), in1 e, in2 c, in3 logsumexp, in4 positions, in5 labels, a.i[0] = 1 if de is wanted, a.i[1] = 1 if dc is; out0.. = those of de, dc: of mean(logsumexp - dot) */ \
  /* images; the kernel of a convolution is as large as its step, so that every input element meets each filter once */ \
  X(convolution, "convolution")         /* in0[n,c,...], in1[o,c,k...], perhaps in2[o]; out0[n,o,...] = sums over c and the filter's places, plus in2; sizes behind c are whole multiples of k or cut to them */ \
  X(convolution_backward, "convolution_backward") /* in gradient, x, weight; out0 = dweight, perhaps out1 = dbias */ \
  X(masked_scatter, "masked_scatter")   /* in0[..,h], in1[..,1] boolean, in2 rows of h; out0 = in0, but where in1 holds the rows of in2 in their order; as many of them as in1 holds */ \
  X(masked_select, "masked_select")     /* in0[..,h], in1[..,1] boolean; out0 = the rows of in0 where in1 holds, in their order, as many as out0 has */ \
  X(avg_pool, "avg_pool2d")             /* in0[n,c,H,W]; out0[n,c,H/k,W/k] = means over k by k, k = a.i[0] */ \
  X(avg_pool_backward, "avg_pool2d_backward") /* in0 gradient; out0[n,c,H,W] = in0 / k^2 at every place of its square */ \
  X(unfold, "im2col")                   /* in0[n,c,H,W]; out0[n,c k k,p] = the pixels of each of the p squares of k by k, k = a.i[0], in the order of in0's dimensions */ \
  X(image_turns, "buffer")              /* out0 fp32 [1,S S + 1,1,2n]: cosine and sine of n angles for each place of a grid of S by S, S = a.i[0], and 0 for the last: (column + 1) f_j for the first half of them, (row + 1) f_j for the others, f_j = a.x^(-2 j / n) */ \
  X(window_order, "_to_copy")           /* out0[n] int64: of images of R by C tokens, i[0] = 2^32 R + C, where the i-th token stands once those of a window of W by W, a.i[1] = 2^32 W + any, stand together; a.x = 1: where it came from, the other way round */ \
  X(packed_attention, "flash_attn_varlen_fwd") /* in q,k,v [1,nh,n,d], not causal, each piece of the sequence by itself; the pieces of an image are the windows of its R by C tokens, as window_order has them, of U places each, a.i[1] = 2^32 W + U, W = 0: all of it; in3 = where pieces end, not read; out0 in q's strides, out1 = logsumexp fp32 [1,nh,n], out2 random state, not written */ \
  X(packed_attention_backward, "flash_attn_varlen_bwd") /* in gradient,q,k,v,out,logsumexp; out0..2 = dq, dk, dv */ \
  X(image_blocks, "where.self")         /* in0[b,s] boolean; out0 int64 [b,s] = the number of the run of true that a place lies in, from 0 in every row, or -1 */ \
  /* attention, causal, scale a.x or, where that is 0, 1/sqrt(d); a.i[0] = dropout of the probabilities times 2^32, a.i[1] = 1: not causal: q[b,nh,s,d], k and v[b,nkv,c,d], query head i uses key/value head i*nkv/nh; of c >= s keys the last s belong to the queries: query i sees the first c - s + i + 1 */ \
  X(flash_attention, "_scaled_dot_product_flash_attention") /* in q,k,v; out0 [b,nh,s,d] in q's strides, out1 = logsumexp fp32 [b,nh,s], out2 rng state u8[16], out3 unused u8[8], neither written */ \
  X(flash_attention_backward, "_scaled_dot_product_flash_attention_backward") /* in gradient,q,k,v,out,logsumexp; out0..2 = dq, dk, dv; perhaps out3 [b,nh,s up to 128] and out4 [b,s up to 128,nh,d up to 32], fp32 scratch memory: sums of dout out, and dq before it is rounded */ \
  X(efficient_attention, "_scaled_dot_product_efficient_attention") /* in q,k,v with as many heads, v of a width d of its own; out0 [b,nh,s,d] in [b,s,nh,d] order, out1 = logsumexp fp32 [b,nh,s rounded up to 32], written up to s; out2, out3: random state, not written. With in3 = bias [b,1,s,c], added to the scores, nothing is causal but by it */ \
  X(efficient_attention_backward, "_scaled_dot_product_efficient_attention_backward") /* as flash_attention_backward, without scratch memory; with in6 = bias as forward */ \
  X(cudnn_attention, "_scaled_dot_product_cudnn_attention") /* in q,k,v; out0 [b,nh,s,d] in q's strides, out1 = logsumexp fp32 [b,nh,s], out2, out3: random state, not written; perhaps out4 = its plan's scratch memory */ \
  X(cudnn_attention_backward, "_scaled_dot_product_cudnn_attention_backward") /* as flash_attention_backward, but perhaps out3 = its plan's scratch memory */ \
  /* fused, of the stack native */ \
  X(add_rms_norm, "fused_add_rms_norm") /* in0[..,h] residual, in1 = out2's view, in2 = weight[h]; in place out2 := in0 + in1, rounded; out0, out1 as rms_norm's of out2 */ \
  X(add_rms_norm_backward, "fused_add_rms_norm_backward") /* in gradient, x, rstd, weight, perhaps g = the gradient of x that came past the norm (out0's view); out0 = dx as rms_norm_backward's, plus g, perhaps out1 = dweight */ \
  X(rope, "rope_")                      /* in0 = out0's view [b,s,n,d], in1[d/2] fp32 inverse frequencies; in place each pair (i, i + d/2) turned by (a.i[1] + s) in1[i], whose cosine and sine are fp32; a.i[0] = 1: turned back */ \
  X(swiglu, "swiglu")                   /* out0 = silu(in0) * in1, rounded once; a.i[0] = 1: GELU's tanh form in place of silu, here and in backward */ \
  X(swiglu_backward, "swiglu_backward") /* in0 gradient, in1 gate, in2 up; out0 = dgate, out1 = dup, perhaps in the place of gate and up */ \
  X(cross_entropy_inplace, "fused_cross_entropy") /* as liger_cross_entropy; out1 in fp64 where the logits are */ \
  X(own_attention, "flash_attention")   /* as flash_attention, without random state */ \
  X(own_attention_backward, "flash_attention_backward") /* as flash_attention_backward, without scratch memory */ \
  /* optimizer */ \
  X(vector_norm, "linalg_vector_norm")  /* out0 = 2-norm of in0, in in0's dtype */ \
  X(row_norm, "linalg_vector_norm")     /* out0[i] = 2-norm of row i of in0 */ \
  X(adamw, "_fused_adamw_")             /* in0 gradient; in place: out0 parameter, out1 exp_avg, out2 exp_avg_sq, out3 step (fp32 scalar, += 1), or, where the caller counts, no out3 and step a.i[0]; hyper-parameters: Trace::adamw */ \
  X(adamw_moments, "_foreach_lerp_")    /* in0 gradient; in place: out0 exp_avg += (1 - beta1) (in0 - out0); out1 exp_avg_sq *= beta2, out1 += (1 - beta2) in0^2. Here and in the next three every step written with = is a library call and rounds to the tensor's dtype */ \
  X(adamw_update, "_foreach_addcdiv_")  /* in0 exp_avg, in1 sqrt(exp_avg_sq); in place out0 parameter: out0 *= 1 - lr wd; d = in1 / sqrt(1 - beta2^t), unless a.i[1] = 1: then d = in1, divided before; d += eps; out0 -= lr / (1 - beta1^t) (in0 / d); t = a.i[0]; d is a temporary of in1's dtype */ \
  X(momentum_update, "_foreach_add_")   /* in0 gradient; in place out0 *= 0.9; out0 += in0 */ \
  X(sgd_update, "_foreach_add_")        /* in0 direction; in place out0 -= lr in0, lr = Trace::adamw.lr */ \
  X(optimizer_math, "optimizer")        /* arithmetic of another optimizer on in0.. into out0..; shapes only, no executor computes it */ \
  /* quantised weights */ \
  X(quantise, "quant")                  /* parameter number a.i[0] (a.i[1] elements, a matrix initialised by its name, rounded to bf16 as checkpoints are) in NF4, blocks of 64: out0 = packed codes u8, the nearest of the 16 values (the lower of two as near) to weight / absmax, two a byte, the first in the high half; out1 = absmax; out2 = the 16 code values. With double quantisation out1 is u8 and out3 = offset (mean of absmax, fp32 scalar), out4 = absmax2 (fp32, blocks of 256 of absmax - offset), out5 = the 256 values of bitsandbytes' signed dynamic map; else out1 is fp32 */ \
  X(dequantise_absmax, "dequantize_blockwise") /* out0 fp32 = in2[in0[i]] * in1[i / 256]; in0 = absmax u8, in1 = absmax2, in2 = map; the offset is added by add_.Tensor */ \
  X(dequantise, "dequantize_4bit")      /* out0[i] = in2[code i of in0] * in1[i / 64], rounded to out0's dtype */ \
  X(gemm_4bit, "gemm_4bit")             /* out0[..,out] = in0[..,in] times the weight [out,in] that dequantise makes of in1 = packed, in2 = scales (fp32, or u8 with in4 = offset, in5 = absmax2, in6 = map) and in3 = code, plus a bias, if one is the last input; no weight is stored */ \
  X(compiled, "triton_")                /* a kernel of torch.compile's, several operators in one; shapes only */ \
  X(cache_quantise, "quantize_affine")  /* a step of quanto's 4-bit quantisation of cached keys or values, or of its inverse; shapes only */ \
  X(int8_linear, "int8_linear")         /* a step of an LLM.int8 weight or product; shapes only */ \
  X(absolute, "abs")                    /* |in0|; these three belong to float8 products: shapes only */ \
  X(largest, "max")                     /* a scalar of in0 */ \
  X(float8, "float8")                   /* a step of a cast to float8, or a copy of its result; bits are u8 */
// clang-format on

// A target of this value counts for nothing: torch.nn.functional.cross_entropy's default ignore_index.
inline constexpr std::int64_t kIgnoreIndex = -100;

// What a collective makes of the same element of every rank; norm: the root of the sum of squares.
enum class ReduceOp : std::uint8_t { mean, sum, largest, norm };

enum class OpKind : std::uint8_t {
#define LEDGER_OP_KIND(kind, name) kind,
  LEDGER_OPS(LEDGER_OP_KIND)
#undef LEDGER_OP_KIND
      count_
};

inline constexpr std::size_t kOpKinds = static_cast<std::size_t>(OpKind::count_);

// ATen name, e.g. "mul.Tensor".
const char* op_name(OpKind kind);

}  // namespace ledger
