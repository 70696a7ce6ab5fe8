// data_parallel_cases.h - Ranks that have the whole model, or shards of it: DDP, FSDP 1 and 2, ZeRO 1 to 3, the stack
// native.
#pragma once

#include "tests/probe/ranks/shared_runs.h"

namespace ledger {

constexpr Shared kDataParallelCases[] = {
    {"native_dp", kOdd, native},
    {"native_dp_accumulated", kOdd,
     [](Recipe& r) {
       native(r);
       r.grad_accum = 2;
     }},
    {"ddp", kOdd, [](Recipe&) {}},
    {"ddp_bucket_view", kOdd, [](Recipe& r) { r.ddp_bucket_view = true; }},
    {"ddp_plain_sgd", kPlain, [](Recipe& r) { r.optimizer = Optimizer::sgd_momentum; }},
    {"ddp_accumulated", tiny::kTied, [](Recipe& r) { r.grad_accum = 2; }},
    {"ddp_recomputed", tiny::kQwen2, [](Recipe& r) { r.checkpointing = Checkpointing::full; }},
    {"fsdp2", kOdd, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_tied", tiny::kTied, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_kept", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.reshard_after_forward = false;
     }},
    {"fsdp2_recomputed", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_accumulated", kOdd,
     [](Recipe& r) {
       r.fsdp = 2;
       r.grad_accum = 2;
     }},
    {"fsdp2_experts", kExperts, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp1", kOdd, [](Recipe& r) { r.fsdp = 1; }},
    {"fsdp1_kept", tiny::kQwen2,
     [](Recipe& r) {
       r.fsdp = 1;
       r.reshard_after_forward = false;
     }},
    {"fsdp1_reentrant", kOdd,
     [](Recipe& r) {
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"fsdp1_accumulated", kOdd,
     [](Recipe& r) {
       r.fsdp = 1;
       r.grad_accum = 2;
     }},
    {"fsdp1_offloaded", kOdd, [](Recipe& r) { offloaded(r, 1); }},
    {"fsdp1_offloaded_kept_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       offloaded(r, 1);
       r.reshard_after_forward = false;
       r.grad_accum = 2;
       r.optimizer = Optimizer::adamw_foreach;
     }},
    {"zero1_offloaded", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.offload = Offload::optimizer;
     }},
    {"zero2_offloaded_accumulated", tiny::kTied,
     [](Recipe& r) {
       zero(r, 2);
       r.offload = Offload::optimizer;
       r.grad_accum = 2;
     }},
    {"zero3_offloaded_optimizer_accumulated", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.offload = Offload::optimizer;
       r.grad_accum = 2;
     }},
    {"zero3_offloaded", tiny::kTied,
     [](Recipe& r) {
       zero(r, 3);
       r.offload = Offload::params;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_offloaded", kOdd, [](Recipe& r) { offloaded(r, 2); }},
    {"fsdp2_offloaded_accumulated", tiny::kTied,
     [](Recipe& r) {
       offloaded(r, 2);
       r.grad_accum = 2;
       r.optimizer = Optimizer::sgd_momentum;
     }},
    {"zero1", kOdd, [](Recipe& r) { zero(r, 1); }},
    {"zero1_overlapping", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.overlap_comm = OverlapComm::on;
     }},
    {"zero1_accumulated", kOdd,
     [](Recipe& r) {
       zero(r, 1);
       r.grad_accum = 2;
     }},
    {"zero2", kOdd, [](Recipe& r) { zero(r, 2); }},
    {"zero2_small_buckets", kOdd,
     [](Recipe& r) {
       zero(r, 2);
       r.reduce_bucket_size = 700;
     }},
    {"zero2_all_reduce", kOdd,
     [](Recipe& r) {
       zero(r, 2);
       r.reduce_scatter = false;
     }},
    {"zero2_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       zero(r, 2);
       r.grad_accum = 3;
     }},
    {"zero3", kOdd, [](Recipe& r) { zero(r, 3); }},
    {"zero3_nothing_persists", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
     }},
    {"zero3_all_reduce", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.reduce_scatter = false;
     }},
    {"zero3_experts", kExperts, [](Recipe& r) { zero(r, 3); }},
    {"zero3_experts_recomputed", kExperts,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
     }},
    {"zero3_experts_with_sinks", kGptOss,
     [](Recipe& r) {
       zero(r, 3);
       r.attention = Attention::eager;
       r.param_persistence_threshold = 1;
     }},
    {"zero3_experts_read_router", kDeepseek2,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero3_every_expert", kLlama4,
     [](Recipe& r) {
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"zero3_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       zero(r, 3);
       r.grad_accum = 2;
     }},
    {"zero3_masters_from_copies", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.sub_group_size = 1000;
       r.deepspeed = DeepSpeed::v0_18_2;
     }},
    {"zero3_sub_groups", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       r.sub_group_size = 1000;
     }},
};

}  // namespace ledger
