#include "core/oom/advice.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace ledger::oom {
namespace {

struct Row {
  Cause cause;
  const char* id;
  const char* key;
  const char* value;
};

// In the order in which to try them: what was confirmed in reports first, what costs least before what costs more.
constexpr Row kRows[] = {
    {Cause::activations, "checkpointing", "checkpointing", "full"},
    {Cause::activations, "fused_attention", "attention", "flash"},
    {Cause::activations, "smaller_batch", "batch", "1"},
    {Cause::activations, "shorter_sequences", "", ""},
    {Cause::activations, "filter_longest", "", ""},
    {Cause::optimizer, "eight_bit_optimizer", "optimizer", "adamw_8bit"},
    {Cause::optimizer, "zero_3", "zero", "3"},
    {Cause::optimizer, "offload_optimizer", "offload", "optimizer"},
    {Cause::optimizer, "more_cards", "", ""},
    {Cause::optimizer, "lora_instead", "method", "lora"},
    {Cause::sharding, "check_launcher", "", ""},
    {Cause::sharding, "check_load_path", "", ""},
    {Cause::sharding, "check_device_per_rank", "", ""},
    {Cause::sharding, "quant_storage", "", ""},
    {Cause::sharding, "wrap_policy", "", ""},
    {Cause::logits, "fused_loss", "loss", "fused_linear"},
    {Cause::logits, "smaller_batch", "batch", "1"},
    {Cause::logits, "chunked_log_probabilities", "loss", "chunked"},
    {Cause::logits, "sixteen_bit_load", "", ""},
    {Cause::logits, "precompute_reference", "", ""},
    {Cause::host, "fewer_host_copies", "", ""},
    {Cause::host, "fewer_workers", "", ""},
    {Cause::host, "less_offload", "", ""},
    {Cause::host, "no_pinning", "", ""},
    {Cause::host, "not_batch_size", "", ""},
    {Cause::weights, "sixteen_bit_load", "", ""},
    {Cause::weights, "quantise", "method", "qlora"},
    {Cause::weights, "shard_weights", "zero", "3"},
    {Cause::weights, "tensor_parallel", "", ""},
    {Cause::gathering, "sharded_state_dict", "", ""},
    {Cause::gathering, "offload_state_dict", "", ""},
    {Cause::gathering, "merge_on_cpu", "", ""},
    {Cause::gathering, "adapter_only", "", ""},
    {Cause::comm, "smaller_buckets", "", ""},
    {Cause::comm, "no_contiguous_gradients", "", ""},
    {Cause::comm, "gradient_as_bucket_view", "ddp_bucket_view", "true"},
    {Cause::comm, "fewer_process_groups", "", ""},
    {Cause::fragmentation, "expandable_segments", "allocator", "torch_expandable"},
    {Cause::fragmentation, "empty_cache", "", ""},
    {Cause::fragmentation, "equal_lengths", "", ""},
    {Cause::eval, "smaller_eval_batch", "", ""},
    {Cause::eval, "loss_only", "", ""},
    {Cause::eval, "reduce_logits", "", ""},
    {Cause::eval, "eval_accumulation", "", ""},
    {Cause::gradients, "zero_2", "zero", "2"},
    {Cause::gradients, "wrap_frozen_apart", "", ""},
    {Cause::gradients, "lora_instead", "method", "lora"},
    {Cause::process, "end_other_process", "", ""},
    {Cause::process, "other_card", "", ""},
    {Cause::process, "visible_devices_early", "", ""},
    {Cause::leak, "detach_loss", "", ""},
    {Cause::leak, "drop_checkpoint", "", ""},
    {Cause::leak, "load_on_cpu", "", ""},
    {Cause::leak, "record_history", "", ""},
    {Cause::kv_cache, "balance_engine", "", ""},
    {Cause::kv_cache, "raise_utilisation", "", ""},
    {Cause::kv_cache, "shorter_context", "", ""},
    {Cause::unknown, "read_the_shape", "", ""},
    {Cause::unknown, "update_the_kernel", "", ""},
};

constexpr std::size_t kOfRunnerUp = 1;  // the first advice for each cause that is also possible

void append(std::vector<Advice>& advice, Cause cause, std::size_t most) {
  for (const Row& row : kRows) {
    if (most == 0) return;
    const auto same = [&](const Advice& a) { return std::string_view(a.id) == row.id; };
    if (row.cause != cause || std::any_of(advice.begin(), advice.end(), same)) continue;
    advice.push_back({row.id, row.key, row.value, std::nullopt});
    --most;
  }
}

}  // namespace

std::vector<const char*> advice_ids() {
  std::vector<const char*> ids;
  for (const Row& row : kRows) {
    const auto same = [&](const char* id) { return std::string_view(id) == row.id; };
    if (std::none_of(ids.begin(), ids.end(), same)) ids.push_back(row.id);
  }
  return ids;
}

std::vector<Advice> advise(const Diagnosis& diagnosis, const Message* message) {
  std::vector<Advice> advice;
  append(advice, diagnosis.cause, std::size(kRows));
  for (const Cause cause : diagnosis.also_possible)
    append(advice, cause, kOfRunnerUp);
  for (Advice& entry : advice) {
    const std::string_view id = entry.id;
    if (id == "end_other_process" && diagnosis.other_process_bytes != 0)
      entry.saves_bytes = diagnosis.other_process_bytes;
    if (id == "expandable_segments" && message != nullptr && diagnosis.fragmentation_is_real) {
      entry.saves_bytes = (*message)[Field::unallocated];
    }
  }
  return advice;
}

}  // namespace ledger::oom
