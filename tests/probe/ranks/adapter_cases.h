// adapter_cases.h - Adapters and images under DDP, FSDP and ZeRO.
#pragma once

#include "tests/probe/ranks/shared_runs.h"

namespace ledger {

constexpr Shared kAdapterCases[] = {
    {"native_dp_lora_recomputed", kOdd,
     [](Recipe& r) {
       native(r);
       lora(r);
       r.checkpointing = Checkpointing::full;
     }},
    {"ddp_images", kImages, small_images},
    {"fsdp2_images", kImages,
     [](Recipe& r) {
       small_images(r);
       r.fsdp = 2;
     }},
    {"fsdp2_images_lora_recomputed", kImages,
     [](Recipe& r) {
       small_images(r);
       lora(r);
       r.fsdp = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp2_tiles", kTiles, [](Recipe& r) { r.fsdp = 2; }},
    {"fsdp2_pooled", kPooled,
     [](Recipe& r) {
       r.fsdp = 2;
       r.attention = Attention::eager;
     }},
    {"zero2_images", kImages,
     [](Recipe& r) {
       small_images(r);
       zero(r, 2);
     }},
    {"zero1_images_lora", kImages,
     [](Recipe& r) {
       small_images(r);
       lora(r);
       zero(r, 1);
     }},
    {"ddp_lora", kOdd, lora},
    {"fsdp2_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 2;
     }},
    {"fsdp2_qlora", kOdd, [](Recipe& r) { qlora(r, 2); }},
    {"fsdp2_qlora_recomputed", kOdd,
     [](Recipe& r) {
       qlora(r, 2);
       r.double_quant = false;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp1_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
     }},
    {"fsdp1_lora_kept_accumulated", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.reshard_after_forward = false;
       r.grad_accum = 3;
     }},
    {"fsdp1_lora_recomputed", tiny::kQwen2,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full;
     }},
    {"fsdp1_lora_reentrant", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
       r.grad_accum = 2;
     }},
    {"fsdp1_lora_checkpoints_within", kOdd,
     [](Recipe& r) {
       lora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
       r.fsdp_activation_checkpointing = true;
     }},
    {"fsdp1_qlora", kOdd, [](Recipe& r) { qlora(r, 1); }},
    {"fsdp1_qlora_reentrant", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"fsdp1_qlora_recomputed_accumulated", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero3_qlora", kOdd,
     [](Recipe& r) {
       qlora(r, 0);
       zero(r, 3);
     }},
    {"zero3_qlora_recomputed_accumulated", kOdd,
     [](Recipe& r) {
       qlora(r, 0);
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero2_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 2);
     }},
    {"zero3_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 3);
     }},
    {"fsdp2_dora", kOdd,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 2;
     }},
    {"fsdp1_dora", kOdd,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 1;
     }},
    {"fsdp1_dora_recomputed_accumulated", tiny::kQwen2,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"fsdp1_dora_reentrant", kOdd,
     [](Recipe& r) {
       dora(r);
       r.fsdp = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"fsdp1_qdora", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.dora = true;
       r.offload = Offload::params;
     }},
    {"zero3_dora", kOdd,
     [](Recipe& r) {
       dora(r);
       zero(r, 3);
     }},
    {"zero3_dora_nothing_persists", tiny::kQwen2,
     [](Recipe& r) {
       dora(r);
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full;
       r.grad_accum = 2;
     }},
    {"zero3_dora_reentrant", kOdd,
     [](Recipe& r) {
       dora(r);
       zero(r, 3);
       r.param_persistence_threshold = 1;
       r.checkpointing = Checkpointing::full_reentrant;
     }},
    {"zero3_qdora", kOdd,
     [](Recipe& r) {
       qlora(r, 0);
       r.dora = true;
       zero(r, 3);
     }},
    {"fsdp1_offloaded_qlora_reentrant", kOdd,
     [](Recipe& r) {
       qlora(r, 1);
       r.offload = Offload::params;
       r.checkpointing = Checkpointing::full_reentrant;
       r.grad_accum = 2;
     }},
    {"zero3_offloaded_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       zero(r, 3);
       r.offload = Offload::params;
     }},
    {"fsdp1_offloaded_lora", kOdd,
     [](Recipe& r) {
       lora(r);
       offloaded(r, 1);
       r.optimizer = Optimizer::adamw_forloop;
     }},
    {"fsdp2_offloaded_qlora", kOdd,
     [](Recipe& r) {
       qlora(r, 2);
       r.offload = Offload::params;
       r.checkpointing = Checkpointing::full;
     }},
    {"zero3_lora_masters_from_copies", kOdd,
     [](Recipe& r) {
       zero(r, 3);
       lora(r);
       r.deepspeed = DeepSpeed::v0_18_2;
     }},
};

}  // namespace ledger
