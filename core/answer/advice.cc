#include "core/answer/advice.h"

#include <algorithm>

#include "core/base/order.h"
#include "core/training/support.h"

namespace ledger {
namespace {

// A change that does not apply leaves the recipe as it is.
struct Row {
  const char* id;
  void (*apply)(Recipe& r);
};

// The same samples a step in smaller pieces; the whole of an odd batch is taken apart.
void split(Recipe& r, std::uint64_t pieces) {
  if (r.task == Task::generate || r.batch % pieces != 0) return;
  r.batch /= pieces;
  r.grad_accum *= pieces;
}

template <auto Member, auto Value>
void set(Recipe& r) {
  r.*Member = Value;
}

// Of a key that only generating reads.
template <auto Member, auto Value>
void set_generating(Recipe& r) {
  if (r.task == Task::generate) r.*Member = Value;
}

template <Optimizer Value>
void replace_adamw(Recipe& r) {
  if (plain_adamw(r)) r.optimizer = Value;
}

// As it is run: prepare_model_for_kbit_training() checkpoints unless told otherwise, the Trainer's bf16=True is
// autocast.
void qlora(Recipe& r) {
  if (r.method == Method::qlora) return;
  r.method = Method::qlora;
  if (r.checkpointing == Checkpointing::none) r.checkpointing = Checkpointing::full;
  if (r.precision == Precision::bf16) r.autocast = true;
}

template <std::uint64_t Gpus>
void shard(Recipe& r) {
  if (r.fsdp != 0 || r.dp != 1 || r.zero != 0) return;
  r.dp = Gpus;
  r.fsdp = 2;
}

// ZeRO-Offload: DeepSpeed's stage 2 where no sharding is chosen, even on one GPU.
void offload_optimizer(Recipe& r) {
  if (r.task == Task::generate || r.fsdp != 0 || r.offload != Offload::none || !plain_adamw(r)) return;
  r.offload = Offload::optimizer;
  r.optimizer = Optimizer::adamw_fused;
  if (r.zero < 2) r.zero = 2;
}

// The GPUs that are there, sharing what each of them holds.
template <std::uint64_t Stage>
void raise_stage(Recipe& r) {
  if (r.dp > 1 && r.fsdp == 0 && r.zero < Stage && r.stack != Stack::megatron) r.zero = Stage;
}

constexpr Row kRows[] = {
    {"checkpointing_full", set<&Recipe::checkpointing, Checkpointing::full>},
    {"checkpointing_selective",
     [](Recipe& r) {
       if (r.checkpointing == Checkpointing::none) r.checkpointing = Checkpointing::selective;
     }},
    {"checkpointing_offload", set<&Recipe::checkpointing, Checkpointing::offload>},
    {"optimizer_fused", replace_adamw<Optimizer::adamw_fused>},
    {"optimizer_8bit", replace_adamw<Optimizer::adamw_8bit>},
    {"optimizer_paged_8bit",
     [](Recipe& r) {
       if (plain_adamw(r) || r.optimizer == Optimizer::adamw_8bit) r.optimizer = Optimizer::paged_adamw_8bit;
     }},
    {"optimizer_adafactor", replace_adamw<Optimizer::adafactor_hf>},
    {"offload_optimizer", offload_optimizer},
    {"offload_params",
     [](Recipe& r) {
       if (r.zero == 3 || r.fsdp != 0) r.offload = Offload::params;
     }},
    {"zero_2", raise_stage<2>},
    {"zero_3", raise_stage<3>},
    {"method_lora",
     [](Recipe& r) {
       if (r.method == Method::full) r.method = Method::lora;
     }},
    {"method_qlora", qlora},
    {"adapter_bf16", set<&Recipe::adapter_dtype, AdapterDtype::bf16>},
    {"no_dora", set<&Recipe::dora, false>},
    {"no_lora_dropout", [](Recipe& r) { r.lora_dropout = 0; }},
    {"double_quant", set<&Recipe::double_quant, true>},
    {"autocast", set<&Recipe::autocast, true>},
    {"precision_bf16", set<&Recipe::precision, Precision::bf16>},
    {"attention_sdpa", set<&Recipe::attention, Attention::sdpa>},
    {"attention_flash", set<&Recipe::attention, Attention::flash>},
    {"weights_int8", set_generating<&Recipe::weights, Weights::int8>},
    {"weights_nf4", set_generating<&Recipe::weights, Weights::nf4>},
    {"kv_cache_quantized", set_generating<&Recipe::kv_cache, KvCacheKind::quantized>},
    {"prefill_logits_last", set_generating<&Recipe::prefill_logits, PrefillLogits::last>},
    {"no_grad", set_generating<&Recipe::no_grad, true>},
    {"loss_chunked", set<&Recipe::loss, Loss::chunked>},
    {"loss_fused_linear", set<&Recipe::loss, Loss::fused_linear>},
    {"loss_cut", set<&Recipe::loss, Loss::cut>},
    {"liger", set<&Recipe::liger, true>},
    {"drop_outputs", set<&Recipe::keep_outputs, false>},
    {"compile", set<&Recipe::compile, true>},
    {"micro_batch_half", [](Recipe& r) { split(r, 2); }},
    {"micro_batch_1",
     [](Recipe& r) {
       if (r.batch > 2) split(r, r.batch);
     }},
    {"seq_half", [](Recipe& r) { r.seq = std::max<std::uint64_t>(r.seq / 2, 1); }},
    {"expandable_segments", set<&Recipe::allocator, AllocatorKind::torch_expandable>},
    {"fsdp_2", shard<2>},
    {"fsdp_8", shard<8>},
};

// Blocks first; with equal blocks, the segments around them.
bool lighter(const Weighed& a, const Weighed& b) {
  if (a.allocated_bytes != b.allocated_bytes) return a.allocated_bytes < b.allocated_bytes;
  return a.reserved_bytes < b.reserved_bytes;
}

bool lighter_change(const Change& a, const Change& b) {
  return lighter(a.after, b.after);
}

void write(JsonWriter& out, const Weighed& w) {
  out.begin_object().member("allocated_bytes", w.allocated_bytes).member("reserved_bytes", w.reserved_bytes);
  out.member("answer", answer_name(w.answer)).member("headroom_bytes", w.headroom_bytes).end_object();
}

}  // namespace

Result<Advice> advise(const ModelConfig& config, const Recipe& recipe) {
  const Result<Weighed> before = weigh(config, recipe);
  if (!before.ok()) return before.problem();
  Advice advice{before.value(), {}};
  for (const Row& row : kRows) {
    Recipe changed = recipe;
    row.apply(changed);
    if (changed == recipe) continue;
    const Result<Weighed> after = weigh(config, changed);
    if (!after.ok() || !lighter(after.value(), advice.before)) continue;
    advice.changes.push_back({row.id, std::move(changed), after.value()});
  }
  sort_stably<Change, lighter_change>(advice.changes);
  return advice;
}

std::vector<const char*> change_ids() {
  std::vector<const char*> ids;
  for (const Row& row : kRows)
    ids.push_back(row.id);
  return ids;
}

std::string write_advice(const Advice& advice) {
  JsonWriter out;
  out.begin_object().member("about", "changes").key("before");
  write(out, advice.before);
  out.key("changes").begin_array();
  for (const Change& change : advice.changes) {
    out.begin_object().member("id", change.id);
    out.member("saved_bytes", advice.before.allocated_bytes - change.after.allocated_bytes).key("after");
    write(out, change.after);
    out.key("recipe");
    write_recipe(out, change.recipe);
    out.end_object();
  }
  out.end_array().end_object();
  return out.take();
}

std::string write_solution(const Solution& solution, Unknown unknown) {
  constexpr const char* kNames[] = {"batch", "seq", "gpu"};
  JsonWriter out;
  out.begin_object().member("about", kNames[static_cast<std::size_t>(unknown)]).key("value");
  if (solution.gpu != nullptr) {
    out.value(solution.gpu->id);
  } else if (solution.value != 0) {
    out.value(solution.value);
  } else {
    out.null();
  }
  out.member("at_limit", solution.at_limit).key("after");
  if (solution.after) {
    write(out, *solution.after);
  } else {
    out.null();
  }
  out.end_object();
  return out.take();
}

}  // namespace ledger
