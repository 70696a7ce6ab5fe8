// megatron_cases.h - Megatron: cuts of every kind, pipelines, pieces of a sequence, experts.
#pragma once

#include "tests/probe/ranks/shared_runs.h"

namespace ledger {

constexpr Shared kMegatronCases[] = {
    {"megatron_dp", kMegatronLlama, [](Recipe& r) { megatron(r, 1, 1); }},
    {"megatron_zero1", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       r.zero = 1;
     }},
    {"megatron_zero1_tp2_sequence", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.zero = 1;
     }},
    {"megatron_zero1_pp2_tied", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.zero = 1;
     }},
    {"megatron_tp2", kMegatronLlama, [](Recipe& r) { megatron(r, 2, 1); }},
    {"megatron_tp4", kMegatronLlama, [](Recipe& r) { megatron(r, 4, 1); }},
    {"megatron_tp4_gpt", kMegatronGpt, [](Recipe& r) { megatron(r, 4, 1); }},
    {"megatron_tp2_sequence", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
     }},
    {"megatron_tp4_sequence_gpt", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 4, 1);
       r.sequence_parallel = true;
     }},
    {"megatron_tp2_sequence_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_tp2_sequence_selective", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_pp2", kMegatronLlama, [](Recipe& r) { megatron(r, 1, 2); }},
    {"megatron_pp2_tied", kMegatronGpt, [](Recipe& r) { megatron(r, 1, 2); }},
    {"megatron_pp4", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 6;
     }},
    {"megatron_pp4_interleaved", kMegatronDeep,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 8;
       r.pipeline_schedule = PipelineSchedule::interleaved;
     }},
    {"megatron_pp4_tied_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 2;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_pp2_units_recomputed", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.checkpointing = Checkpointing::full;
       r.recompute_num_layers = 2;
     }},
    {"megatron_tp2_first_layers_recomputed", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::full;
       r.recompute_method = RecomputeMethod::block;
       r.recompute_num_layers = 3;
     }},
    {"megatron_pp4_uneven", kMegatronDeep,
     [](Recipe& r) {
       megatron(r, 1, 4);
       r.micro_batches = 6;
       r.decoder_first_pipeline_num_layers = 5;
       r.decoder_last_pipeline_num_layers = 1;
     }},
    {"megatron_pp2_shorter_end_tied", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.decoder_last_pipeline_num_layers = 1;
     }},
    {"megatron_pp2_chunks_of_three", kMegatronDeep,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.micro_batches = 4;
       r.pipeline_schedule = PipelineSchedule::interleaved;
       r.num_layers_per_virtual_pipeline_stage = 3;
     }},
    {"megatron_tp2_sequence_fused_loss", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.loss = Loss::vocab_parallel_fused;
     }},
    {"megatron_tp2_scores", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.attention = Attention::eager;
     }},
    {"megatron_tp2_sequence_latent", kMegatronLatent,
     [](Recipe& r) {
       megatron(r, 2, 1);
       r.sequence_parallel = true;
       r.attention = Attention::eager;
     }},
    {"megatron_pp2_latent_zero1", kMegatronLatent,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.zero = 1;
       r.attention = Attention::eager;
     }},
    {"megatron_tp2_local", kMegatronLong, [](Recipe& r) { local_modules(r, 2, 1); }},
    {"megatron_tp4_sequence_local", kMegatronLong,
     [](Recipe& r) {
       local_modules(r, 4, 1);
       r.sequence_parallel = true;
     }},
    {"megatron_tp2_sequence_local_recomputed", kMegatronLong,
     [](Recipe& r) {
       local_modules(r, 2, 1);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_pp2_local_zero1", kMegatronLong,
     [](Recipe& r) {
       local_modules(r, 1, 2);
       r.zero = 1;
     }},
    {"megatron_pp2_tp2_sequence", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 2, 2);
       r.sequence_parallel = true;
     }},
    {"megatron_pp2_interleaved", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.micro_batches = 4;
       r.pipeline_schedule = PipelineSchedule::interleaved;
     }},
    {"megatron_pp2_interleaved_tied_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       r.micro_batches = 6;
       r.pipeline_schedule = PipelineSchedule::interleaved;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_cp2", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2);
     }},
    {"megatron_cp4", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4);
     }},
    {"megatron_cp4_flash_gpt", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4);
       r.batch = 2;
       r.attention = Attention::flash;
     }},
    {"megatron_cp2_zero1_gpt", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2);
       r.zero = 1;
     }},
    {"megatron_cp2_a2a", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2, CpComm::a2a);
     }},
    {"megatron_cp4_a2a_flash", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::a2a);
       r.batch = 2;
       r.attention = Attention::flash;
     }},
    {"megatron_cp4_a2a_p2p", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::a2a_p2p);
     }},
    {"megatron_cp4_a2a_p2p_flash_recomputed", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::a2a_p2p);
       r.attention = Attention::flash;
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_cp2_all_gather", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 2, CpComm::all_gather);
     }},
    {"megatron_cp4_all_gather_flash", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 1, 1);
       context(r, 4, CpComm::all_gather);
       r.batch = 2;
       r.attention = Attention::flash;
     }},
    {"megatron_cp2_tp2_sequence_selective", kMegatronLlama,
     [](Recipe& r) {
       megatron(r, 2, 1);
       context(r, 2);
       r.sequence_parallel = true;
       r.checkpointing = Checkpointing::selective;
     }},
    {"megatron_cp2_pp2", kMegatronGpt,
     [](Recipe& r) {
       megatron(r, 1, 2);
       context(r, 2);
       r.attention = Attention::flash;
     }},
    {"megatron_cp2_experts", kMegatronMixtral,
     [](Recipe& r) {
       experts(r, 1, 1, 2, 0);
       context(r, 2);
     }},
    {"megatron_experts_in_one_place", kMegatronMixtral, [](Recipe& r) { megatron(r, 1, 1); }},
    {"megatron_ep2", kMegatronMixtral, [](Recipe& r) { experts(r, 1, 1, 2, 0); }},
    {"megatron_ep4", kMegatronMixtral, [](Recipe& r) { experts(r, 1, 1, 4, 0); }},
    {"megatron_ep2_zero1", kMegatronMixtral,
     [](Recipe& r) {
       experts(r, 1, 1, 2, 0);
       r.zero = 1;
     }},
    {"megatron_ep2_recomputed", kMegatronQwen3Moe,
     [](Recipe& r) {
       experts(r, 1, 1, 2, 0);
       r.checkpointing = Checkpointing::full;
     }},
    {"megatron_tp2_experts", kMegatronMixtral, [](Recipe& r) { experts(r, 2, 1, 1, 0); }},
    {"megatron_tp2_ep2_zero1", kMegatronQwen3Moe,
     [](Recipe& r) {
       experts(r, 2, 1, 2, 0);
       r.zero = 1;
     }},
    {"megatron_tp2_ep2_etp1", kMegatronQwen2Moe, [](Recipe& r) { experts(r, 2, 1, 2, 1); }},
    {"megatron_tp2_ep2_etp1_zero1", kMegatronMixtral,
     [](Recipe& r) {
       experts(r, 2, 1, 2, 1);
       r.zero = 1;
     }},
    {"megatron_etp2_of_data_ranks", kMegatronMixtral, [](Recipe& r) { experts(r, 1, 1, 1, 2); }},
    {"megatron_pp2_ep2", kMegatronQwen3Moe,
     [](Recipe& r) {
       experts(r, 1, 2, 2, 0);
       r.zero = 1;
     }},
};

}  // namespace ledger
