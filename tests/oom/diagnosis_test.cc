// Stage and cause of texts in the frameworks' formats, with neutral paths and numbers of our own.
#include "core/oom/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/oom/explain.h"

namespace ledger::oom {
namespace {

struct Case {
  const char* name;
  const char* text;
  Stage stage;
  Cause cause;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

const Case kCases[] = {
    {"quantised_load",
     "  File \"/app/models.py\", line 1, in load\n    model = AutoModelForCausalLM.from_pretrained(\n    "
     "set_module_quantized_tensor_to_device(\n",
     Stage::load, Cause::weights},
    {"shards_stopped", "Loading checkpoint shards:  40%|####      | 4/10 [00:08<00:12]\nCUDA out of memory.",
     Stage::load, Cause::sharding},
    {"shards_finished",
     "Loading checkpoint shards: 100%|####| 10/10 [00:08<00:00]\nloss = F.cross_entropy(a, b)\nCUDA out of memory.",
     Stage::loss, Cause::logits},
    {"kbit", "    model = prepare_model_for_kbit_training(model)\nCUDA out of memory.", Stage::load, Cause::weights},
    {"ddp_wrap", "    self._ddp_init_helper(\n    self.reducer = dist.Reducer(\nCUDA out of memory.", Stage::load,
     Cause::comm},
    {"broadcast_model",
     "    self._configure_distributed_model(model)\n    self._broadcast_model()\nNCCL error: Cuda failure 2 'out of "
     "memory'",
     Stage::load, Cause::sharding},
    {"zero_init",
     "  in deepspeed.initialize\n    self._configure_optimizer(optimizer, params)\n    "
     "self.initialize_optimizer_states()",
     Stage::load, Cause::optimizer},
    {"pinned", "    in _create_param_groups_fp16_flat_cpu_memory\nRuntimeError: CUDA error: out of memory", Stage::load,
     Cause::host},
    {"resume", "    self._load_optimizer_and_scheduler(resume_from_checkpoint)\nCUDA out of memory", Stage::load,
     Cause::optimizer},
    {"scores",
     "  File \"/app/trainer.py\", line 9, in compute_loss\n    outputs = model(**inputs)\n    attn_weights = "
     "nn.functional.softmax(attn_weights, dim=-1)\n",
     Stage::forward, Cause::activations},
    {"graph_capture", "    graphs = make_graphed_callables(callables, args)\ntorch.autograd.grad(\nCUDA out of memory",
     Stage::forward, Cause::activations},
    {"cross_entropy",
     "    outputs = model(**inputs)\n    logits = logits.float()\n    loss = F.cross_entropy(logits, labels)\nCUDA out "
     "of memory",
     Stage::loss, Cause::logits},
    {"dpo_log_probabilities", "    per_token_logps = torch.gather(logits.log_softmax(-1), dim=2, index=labels)",
     Stage::loss, Cause::logits},
    {"backward",
     "    outputs = model(**inputs)\n    self.accelerator.backward(loss)\n    "
     "Variable._execution_engine.run_backward(\n",
     Stage::backward, Cause::activations},
    {"recomputation_is_backward",
     "    loss.backward()\n  in backward\n    outputs = ctx.run_function(*args)\n    attn = softmax(attn_scores)",
     Stage::backward, Cause::activations},
    {"gradient_reduction",
     "    engine.backward(loss)\n    self.reduce_ipg_grads()\n    flat = _flatten_dense_tensors(grads)",
     Stage::backward, Cause::comm},
    {"first_optimizer_step",
     "    self.optimizer.step()\n    self._init_group(\n    state['exp_avg'] = torch.zeros_like(p)", Stage::optimizer,
     Cause::optimizer},
    {"foreach", "    _multi_tensor_adamw(\n    exp_avg_sq_sqrt = torch._foreach_sqrt(device_exp_avg_sqs)",
     Stage::optimizer, Cause::optimizer},
    {"paged", "Error out of memory at line 12 in file /src/csrc/pythonInterface.c", Stage::optimizer, Cause::host},
    {"eval_predictions", "    output = self.evaluation_loop(\n    preds_host = nested_concat(preds_host, logits)",
     Stage::eval, Cause::eval},
    {"eval_over_loss", "    output = self.evaluation_loop(\n    loss = F.cross_entropy(a, b)\n", Stage::eval,
     Cause::eval},
    {"full_state_dict",
     "    cpu_state = model.state_dict()\n    _full_pre_state_dict_hook(\n    _unshard_fsdp_state_params(", Stage::save,
     Cause::gathering},
    {"failed_clone",
     "UserWarning: Failed to clone() tensor with name head.weight. Error: CUDA out of memory. Tried to allocate 300.00 "
     "MiB",
     Stage::save, Cause::gathering},
    {"merge", "    model = model.merge_and_unload()\nOutOfMemoryError: CUDA out of memory.", Stage::save,
     Cause::gathering},
    {"weight_sync", "    self._move_full_model_to_vllm()\n    with gather_if_zero3(params):", Stage::generate,
     Cause::sharding},
    {"cache_blocks", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
     Stage::generate, Cause::kv_cache},
    {"exit_9", "process 3 exits with return code = -9", Stage::unknown, Cause::host},
    {"ray", "OutOfMemoryError: Task was killed due to the node running low on memory.", Stage::unknown, Cause::host},
    {"killed", "Loading data\nKilled\n", Stage::unknown, Cause::host},
    {"data_parallel", ">>   Training with DataParallel so batch size has been adjusted to: 8\nCUDA out of memory.",
     Stage::unknown, Cause::sharding},
    {"other_process",
     "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 24.00 GiB total capacity; 5.00 GiB already allocated; "
     "10.00 MiB free; 5.25 GiB reserved in total by PyTorch)",
     Stage::unknown, Cause::process},
    {"ranks_on_one_card",
     "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 40.00 GiB of which 8.00 MiB is "
     "free. Process 901 has 0 bytes memory in use. Process 902 has 0 bytes memory in use. Process 903 has 0 bytes "
     "memory in use. Including non-PyTorch memory, this process has 0 bytes memory in use. Of the allocated memory "
     "9.00 GiB is allocated by PyTorch, and 90.00 MiB is reserved by PyTorch but unallocated.",
     Stage::unknown, Cause::sharding},
    {"fragmentation",
     "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 40.00 GiB total capacity; 28.00 GiB already allocated; "
     "1.00 GiB free; 38.00 GiB reserved in total by PyTorch)",
     Stage::unknown, Cause::fragmentation},
    {"copies",
     "CUDA out of memory. Tried to allocate 12.50 GiB (GPU 0; 40.00 GiB total capacity; 37.60 GiB already allocated; "
     "1.00 GiB free; 37.70 GiB reserved in total by PyTorch)",
     Stage::unknown, Cause::optimizer},
    {"triton_limit",
     "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 150000, Hardware limit: 101376.",
     Stage::forward, Cause::unknown},
    {"summed_loss", "total_loss += loss\nCUDA out of memory after 4000 steps", Stage::unknown, Cause::leak},
    {"chinese_full",
     "\xe5\x85\xa8\xe5\x8f\x82\xe6\x95\xb0\xe5\xbe\xae\xe8\xb0\x83, zero-2, batch_size\xe4\xb8\xba"
     "1, OOM",
     Stage::unknown, Cause::optimizer},
};

class Diagnoses : public testing::TestWithParam<Case> {};

TEST_P(Diagnoses, StageAndCause) {
  const Case& c = GetParam();
  const Diagnosis d = explain(c.text).diagnosis;
  EXPECT_STREQ(stage_name(d.stage), stage_name(c.stage));
  EXPECT_STREQ(cause_name(d.cause), cause_name(c.cause));
  EXPECT_LE(d.also_possible.size(), 2u);
  EXPECT_EQ(std::count(d.also_possible.begin(), d.also_possible.end(), d.cause), 0);
  EXPECT_GT(d.confidence, 0);
  EXPECT_LE(d.confidence, 1);
  EXPECT_FALSE(d.evidence.empty());
}

INSTANTIATE_TEST_SUITE_P(Oom, Diagnoses, testing::ValuesIn(kCases),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(OomDiagnosis, WithoutEvidenceItSaysThatItDoesNotKnow) {
  const Diagnosis d = explain("it does not work").diagnosis;
  EXPECT_EQ(d.stage, Stage::unknown);
  EXPECT_LT(d.confidence, 0.25);
  EXPECT_TRUE(d.evidence.empty());
}

// PyTorch prints its hint about fragmentation in every message: alone it is no sign.
TEST(OomDiagnosis, TheHintAloneIsNoFragmentation) {
  const Diagnosis d = explain(
                          "CUDA out of memory. Tried to allocate 500.00 MiB (GPU 0; 40.00 GiB total capacity; 37.00 "
                          "GiB already allocated; "
                          "1.00 GiB free; 38.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated "
                          "memory try setting "
                          "max_split_size_mb to avoid fragmentation.")
                          .diagnosis;
  EXPECT_FALSE(d.fragmentation_is_real);
  EXPECT_NE(d.cause, Cause::fragmentation);
}

TEST(OomDiagnosis, OtherProcessesAreFoundBySubtraction) {
  const Explanation e = explain(
      "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 24.00 GiB total capacity; 5.00 GiB already allocated; "
      "1.00 GiB free; 6.00 GiB reserved in total by PyTorch)");
  EXPECT_EQ(e.diagnosis.other_process_bytes, 17 * kGiB);
  ASSERT_FALSE(e.advice.empty());
  EXPECT_EQ(e.advice[0].saves_bytes, 17 * kGiB);
}

TEST(OomDiagnosis, EvidenceQuotesTheLine) {
  const Diagnosis d = explain("[rank1]:     loss.backward(**kwargs)\n").diagnosis;
  ASSERT_FALSE(d.evidence.empty());
  EXPECT_EQ(d.evidence[0].quote, "loss.backward(**kwargs)");
}

TEST(OomDiagnosis, HintsOfTheRecipe) {
  const Explanation e =
      explain("per_device_train_batch_size=4, cutoff_len: 2048, QLoRA with ZeRO-3\nCUDA out of memory.");
  const auto value = [&](std::string_view key) {
    for (const RecipeHint& hint : e.recipe) {
      if (key == hint.key) return hint.value;
    }
    return std::string();
  };
  EXPECT_EQ(value("batch"), "4");
  EXPECT_EQ(value("seq"), "2048");
  EXPECT_EQ(value("method"), "qlora");
  EXPECT_EQ(value("zero"), "3");
}

}  // namespace
}  // namespace ledger::oom
