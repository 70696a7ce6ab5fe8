// torchtitan_cases.h - torchtitan: tensor, context and expert parallelism, pipelines, beside FSDP2.
#pragma once

#include "tests/probe/ranks/shared_runs.h"

namespace ledger {

constexpr Shared kTorchtitanCases[] = {
    {"titan_experts_fsdp2", kDeepseek, [](Recipe& r) { titan_experts(r, 1); }},
    {"titan_ep2", kDeepseek, [](Recipe& r) { titan_experts(r, 2); }},
    {"titan_ep4", kDeepseek, [](Recipe& r) { titan_experts(r, 4); }},
    {"titan_ep2_recomputed", kDeepseek,
     [](Recipe& r) {
       titan_experts(r, 2, Checkpointing::full);
       r.grad_accum = 2;
     }},
    {"titan_ep2_selective", kDeepseek, [](Recipe& r) { titan_experts(r, 2, Checkpointing::selective); }},
    {"titan_ep2_kept_v0_2_0", kDeepseek,
     [](Recipe& r) {
       titan_experts(r, 2);
       r.stack = Stack::torchtitan_0_2_0;
       r.reshard_after_forward = false;
     }},
    {"titan_ep2_selective_v0_2_0", kDeepseek,
     [](Recipe& r) {
       titan_experts(r, 2, Checkpointing::selective);
       r.stack = Stack::torchtitan_0_2_0;
     }},
    {"titan_ep2_qwen3", kQwen3Moe,
     [](Recipe& r) {
       titan_experts(r, 2, Checkpointing::full);
       r.loss = Loss::chunked;
     }},
    {"titan_ep4_qwen3_selective_v0_2_0", kQwen3Moe,
     [](Recipe& r) {
       titan_experts(r, 4, Checkpointing::selective);
       r.stack = Stack::torchtitan_0_2_0;
     }},
    {"cp2_fsdp2", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       sharded(r);
       context(r, 2);
     }},
    {"cp4_fsdp2", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       sharded(r);
       context(r, 4);
       r.batch = 2;
     }},
    {"cp4_fsdp2_rotated", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       sharded(r);
       context(r, 4, CpComm::p2p);
       r.grad_accum = 2;
     }},
    {"cp2_tp2_fsdp2_qwen3", kCuttableQwen3,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       context(r, 2);
       r.checkpointing = Checkpointing::full;
     }},
    {"cp2_fsdp2_selective_v0_1", kCuttable,
     [](Recipe& r) {
       tensor(r, 1);
       r.stack = Stack::torchtitan_0_1;
       sharded(r);
       r.units = Units::layers;
       context(r, 2);
       r.checkpointing = Checkpointing::selective;
     }},
    {"tp2", kCuttable, [](Recipe& r) { tensor(r, 2); }},
    {"tp4", kCuttable, [](Recipe& r) { tensor(r, 4); }},
    {"tp2_fsdp2", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
     }},
    {"tp2_fsdp2_recomputed", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"tp4_selective", kCuttable,
     [](Recipe& r) {
       tensor(r, 4);
       r.checkpointing = Checkpointing::selective;
     }},
    {"tp4_chunked", kCuttable,
     [](Recipe& r) {
       tensor(r, 4);
       r.loss = Loss::chunked;
     }},
    {"tp2_fsdp2_chunked", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       r.loss = Loss::chunked;
       r.checkpointing = Checkpointing::full;
     }},
    {"tp2_qwen3", kCuttableQwen3, [](Recipe& r) { tensor(r, 2); }},
    {"tp4_qwen3", kCuttableQwen3, [](Recipe& r) { tensor(r, 4); }},
    {"tp2_v0_1", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       r.stack = Stack::torchtitan_0_1;
       sharded(r);
       r.units = Units::layers;
     }},
    {"fsdp2_torchtitan", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.fsdp = 2;
       r.units = Units::titan;
     }},
    {"fsdp2_torchtitan_chunked", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.loss = Loss::chunked;
       r.seq = 8;
       sharded(r);
     }},
    {"fsdp2_torchtitan_chunked_accumulated", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       r.loss = Loss::chunked;
       r.seq = 8;
       r.grad_accum = 2;
       r.checkpointing = Checkpointing::full;
       sharded(r);
     }},
    {"fsdp2_offloaded_torchtitan", kOdd,
     [](Recipe& r) {
       r.stack = Stack::torchtitan;
       r.attention = Attention::sdpa;
       offloaded(r, 2);
       r.units = Units::titan;
     }},
    {"tp2_fsdp2_offloaded", kCuttable,
     [](Recipe& r) {
       tensor(r, 2);
       sharded(r);
       r.offload = Offload::params;
     }},
    {"torchtitan_pp2", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan, 2, 3); }},
    {"torchtitan_pp2_qwen3_recomputed", kTitanQwen3,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_2_0, 2, 4);
       r.batch = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"torchtitan_pp4", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan_0_1, 4, 5); }},
    {"torchtitan_pp2_one_micro_batch", kTitanDeep, [](Recipe& r) { titan_stages(r, Stack::torchtitan, 2, 1); }},
    {"torchtitan_pp2_tp2", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan, 2, 3);
       r.tp = 2;
       r.sequence_parallel = true;
     }},
    {"torchtitan_pp2_sharded", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan, 2, 3);
       r.fsdp = 2;
     }},
    {"torchtitan_pp2_sharded_in_the_root", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_1, 2, 2);
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"torchtitan_pp2_interleaved", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_1, 2, 4);
       r.pipeline_schedule = PipelineSchedule::interleaved;
     }},
    {"torchtitan_pp2_interleaved_sharded", kTitanDeep,
     [](Recipe& r) {
       titan_stages(r, Stack::torchtitan_0_0_2, 2, 6);
       r.pipeline_schedule = PipelineSchedule::interleaved;
       r.fsdp = 2;
     }},
};

}  // namespace ledger
