#include "probe/oom_texts.h"

#include <iterator>

namespace ledger {
namespace {

struct Text {
  std::string_view id;
  const char* text;
};

constexpr const char* kCauses[] = {
    "activations: what grows with batch and sequence length",
    "optimizer: states, fp32 copies and temporaries of the step",
    "sharding not effective: each card holds what should be divided",
    "logits: batch x tokens x vocabulary",
    "host RAM: the computer's memory ran out, not the card's",
    "weights: the model itself",
    "checkpoint gathering: saving needs whole tensors in one place",
    "comm buffers: buckets and flat copies for communication",
    "fragmentation: free memory is there, in pieces",
    "eval accumulating logits: predictions of the whole set are kept",
    "gradients: one more copy of what is trained",
    "other process: somebody else is on the card",
    "leak: something from earlier steps is still held",
    "KV cache: the inference engine's share",
    "not a matter of capacity",
};
static_assert(std::size(kCauses) == oom::kCauses);

// Frames, log lines and words speak for themselves by the line quoted; numbers need a sentence.
constexpr Text kEvidence[] = {
    {"ranks_on_one_card", "several sister processes on this card: the local rank is not set"},
    {"other_process_bytes", "capacity less free less this process leaves memory that others hold"},
    {"tight_pool", "hardly anything was freed before: as while loading, or creating states"},
    {"idle_pool", "the idle pool exceeds the request and a tenth of the card: it is in pieces"},
    {"idle_pool_small", "the idle pool exceeds the request, but is small"},
    {"whole_copies", "what is allocated is whole copies of the request: one more copy of the parameters"},
    {"request_above_capacity", "the request exceeds the card: a wrong shape, or a sum over a whole set"},
    {"large_request", "the request is more than a tenth of the card: it is itself the culprit"},
    {"request_below_free", "more was free than requested: a race with another rank, or a message from elsewhere"},
    {"progress_first_step", "the first step had not ended"},
    {"progress_second_step", "one step went well: the optimizer's states are born in it"},
    {"progress_late", "it ran for a while: a longer batch, rather than a leak"},
    {"progress_very_late", "it ran for long: the longest batch, or a leak"},
    {"memory_grows_between_steps", "logged memory grows from one step to the next"},
    {"few_trainable", "few parameters are trained: gradients and states are small"},
    {"loss_summed_with_graph", "the loss is summed with its graph: every step's activations stay"},
    {"outside_allocator", "the device holds more than PyTorch reserved: libraries and NCCL"},
    {"stages_compared", "several ZeRO stages were compared: a higher one brings buffers"},
    {"mps_other_allocations", "most memory lies outside PyTorch's allocator"},
    {"handle_in_forward", "cuBLAS found no room for its handle at the first product: the card was full before"},
    {"handle_in_backward", "cuBLAS found no room for the backward thread's handle: forward had filled the card"},
};

constexpr Text kEvidenceKinds[] = {{"stage_", "the stage is read from"},
                                   {"frame_", "a frame of the traceback"},
                                   {"log_", "a line of the log"},
                                   {"words_", "the words around the error"},
                                   {"device_", "the device's allocator refused"}};

constexpr Text kAdvice[] = {
    {"checkpointing", "Turn on gradient checkpointing (with PEFT also enable_input_require_grads)."},
    {"fused_attention", "Use a fused attention (flash or sdpa), so that no score matrix is kept."},
    {"smaller_batch", "Lower the micro-batch per GPU to 1 and accumulate gradients instead."},
    {"shorter_sequences", "Lower the largest sequence length; check that it is really applied."},
    {"filter_longest", "Drop or split the longest samples: one of them decides the peak."},
    {"eight_bit_optimizer", "Use an 8-bit or paged AdamW."},
    {"zero_3", "Use ZeRO-3 or FSDP instead of ZeRO-1/2 or DDP, over more than one GPU."},
    {"offload_optimizer", "Offload the optimizer to the host, if its memory suffices."},
    {"more_cards", "Use more cards: states divide among them; on one card ZeRO divides nothing."},
    {"lora_instead", "Train adapters (LoRA) instead of all parameters."},
    {"check_launcher",
     "Check the launcher: accelerate launch --use_deepspeed, deepspeed or torchrun with the config that is meant; the "
     "log must name ZeRO or FSDP."},
    {"check_load_path",
     "With ZeRO-3 or FSDP leave device_map and low_cpu_mem_usage off, so that loading does not bypass the sharding."},
    {"check_device_per_rank", "Set the device from LOCAL_RANK before anything is put on cuda."},
    {"quant_storage", "QLoRA with FSDP or ZeRO-3: bnb_4bit_quant_storage must equal the compute dtype."},
    {"wrap_policy", "Check the wrap policy: a gathered unit should be one layer, not the model."},
    {"fused_loss", "Use a fused linear cross-entropy (Liger, cut cross-entropy): the logits are never whole."},
    {"chunked_log_probabilities", "Compute the loss or log-probabilities in chunks of tokens."},
    {"sixteen_bit_load", "Load the weights in bf16: without a dtype they come in fp32."},
    {"precompute_reference", "DPO and the like: precompute the reference's log-probabilities."},
    {"fewer_host_copies",
     "Load on one rank (low_cpu_mem_usage, meta device): ranks x model size is what the host holds."},
    {"fewer_workers", "Fewer data workers and less preprocessing in memory."},
    {"less_offload", "Offload less, or to NVMe: parameters and states then lie in the host's memory."},
    {"no_pinning", "Turn pinning off, under WSL above all: page-locked memory has a limit of its own."},
    {"not_batch_size", "A smaller batch will not help: this is not the card's memory."},
    {"quantise", "Load the base in 4 bits (QLoRA)."},
    {"shard_weights", "Shard the weights: ZeRO-3 or FSDP full shard."},
    {"tensor_parallel", "Split the model over cards: tensor or pipeline parallelism."},
    {"sharded_state_dict", "Save sharded state dicts and merge them offline."},
    {"offload_state_dict", "Gather on the CPU of one rank: offload_to_cpu and rank0_only."},
    {"merge_on_cpu", "Merge adapters on the CPU, in another process."},
    {"adapter_only", "Save the adapter's own parameters, not the gathered base."},
    {"smaller_buckets", "Lower reduce_bucket_size and allgather_bucket_size."},
    {"no_contiguous_gradients",
     "ZeRO-2: contiguous_gradients false, or ZeRO-1: its buffer is allocated at the start of backward."},
    {"gradient_as_bucket_view", "DDP: gradient_as_bucket_view=True spares one copy of the gradients."},
    {"fewer_process_groups", "Fewer process groups: each brings NCCL's buffers, outside PyTorch's allocator."},
    {"expandable_segments",
     "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (not with an engine that sleeps and wakes)."},
    {"empty_cache", "Call torch.cuda.empty_cache() before a phase with other sizes."},
    {"equal_lengths", "Pad to a few fixed lengths, so that blocks can be used again."},
    {"smaller_eval_batch", "Set the eval batch: its default is 8, whatever training uses."},
    {"loss_only", "prediction_loss_only=True, if predictions are not needed."},
    {"reduce_logits", "preprocess_logits_for_metrics: keep the argmax, not the logits."},
    {"eval_accumulation", "eval_accumulation_steps moves predictions to the host; they still have to fit there."},
    {"zero_2", "ZeRO-2 or FSDP divides gradients among ranks."},
    {"wrap_frozen_apart", "FSDP: wrap frozen parameters apart from trained ones (use_orig_params)."},
    {"end_other_process", "End or move the other process (nvidia-smi lists them)."},
    {"other_card", "Choose another card."},
    {"visible_devices_early", "Set CUDA_VISIBLE_DEVICES before torch is imported, so that it takes effect."},
    {"detach_loss", "Sum loss.item() or loss.detach(), not the loss."},
    {"drop_checkpoint", "Delete the loaded checkpoint before training goes on."},
    {"load_on_cpu", "Load checkpoints with map_location='cpu'."},
    {"record_history",
     "Record the allocator's history (torch.cuda.memory._record_memory_history) and look for what grows."},
    {"balance_engine",
     "Balance engine and trainer: a smaller share for the engine (mem_fraction_static, gpu_memory_utilization) while "
     "training."},
    {"raise_utilisation", "If the engine says that no cache blocks are left, its share must be larger, not smaller."},
    {"shorter_context", "Lower max_model_len."},
    {"read_the_shape", "Look at the shapes: a request beyond the card or a kernel's limit is no setting's fault."},
    {"update_the_kernel", "Update the kernel or library, or choose smaller blocks."},
};

constexpr Text kConclusions[] = {
    {"prediction_does_not_fit", "the prediction agrees: this does not fit the card."},
    {"prediction_tight", "the prediction says that it fits only as long as cached blocks are given back in time."},
    {"prediction_fits", "the prediction says that this fits the card."},
    {"other_process_takes_the_room", "without the other process it would fit."},
    {"other_process_beside_it", "it should fit even beside the other process."},
    {"sharding_not_in_force",
     "twice what was predicted is allocated: the sharding or quantisation that the recipe names is not in force."},
    {"longer_batch_than_recipe",
     "more is allocated than the recipe ever needs: a longer batch than it says, or another dtype."},
    {"above_every_phase", "no phase of the prediction reaches what was allocated."},
};

template <std::size_t N>
const char* find(const Text (&table)[N], std::string_view id) {
  for (const Text& row : table) {
    if (row.id == id) return row.text;
  }
  return nullptr;
}

template <std::size_t N>
std::string text_or_id(const Text (&table)[N], std::string_view id) {
  const char* text = find(table, id);
  return text == nullptr ? std::string(id) : text;
}

}  // namespace

std::string cause_text(oom::Cause cause) {
  return kCauses[static_cast<std::size_t>(cause)];
}

std::string evidence_text(std::string_view id) {
  if (const char* text = find(kEvidence, id)) return text;
  for (const Text& kind : kEvidenceKinds) {
    if (id.starts_with(kind.id)) return kind.text;
  }
  return std::string(id);
}

std::string advice_text(std::string_view id) {
  return text_or_id(kAdvice, id);
}

std::string conclusion_text(std::string_view id) {
  return text_or_id(kConclusions, id);
}

}  // namespace ledger
