#include "probe/texts.h"

#include <array>
#include <string_view>

namespace ledger {
namespace {

// {where}, {read}, {expected} and {nearest} are replaced by the problem's data.
constexpr std::array<const char*, static_cast<std::size_t>(ProblemCode::count_)> kSentences = {
    "not valid JSON at {where} (line:column), near {read}. Is the file cut short, or not a JSON file?",
    "{read} bytes is too large; at most {expected} are read. A config.json has a few KiB: is this the file you meant?",
    "nested deeper than {expected} levels. This is not a model configuration.",
    "expected a JSON object at the top, found {read}. Such a file starts with '{'.",
    "the key {where} is missing; expected {expected}.",
    "{where}: expected {expected}, found {read}.",
    "{where}: {read} is out of range; expected {expected}.",
    "{where}: {read} is not one of {expected}.",
    "unknown key {where}.",
    "this is {read}, not a model's config.json. Use the file named config.json from the model's folder.",
    "model_type {read} is not known yet; known are {expected}.",
    "{where} = {read} do not go together: {expected}.",
    "{where} = {read} cannot be computed: {expected}.",
    "{where}: this would take about {read} trace events; the limit is {expected}.",
    "{where}: the sizes multiply beyond 64 bits. Please check the numbers.",
    "schema_version {read} is not understood; this version reads {expected}.",
};

struct Reason {
  const char* id;
  const char* sentence;
};

constexpr Reason kReasons[] = {
    {"family_step_not_modelled",
     "the parameters of this family are counted, but its training step is not modelled yet"},
    {"variant_step_not_modelled", "this variant of the family is counted, but its training step is not modelled yet"},
    {"expert_targets_go_together",
     "the experts' gate and up projections are one parameter in transformers 5: PEFT takes both names as targets, or "
     "none"},
    {"expert_adapters_are_plain",
     "PEFT adapts routers and experts as parameters, without DoRA and without lora_dropout; leave them out of targets, "
     "or these at their defaults"},
    {"family_attention_not_modelled",
     "this family's own code is not modelled with this attention; leave it at sdpa, which stands for the family's "
     "default"},
    {"decoder_seq_needs_an_encoder", "only an encoder-decoder reads two lengths; leave decoder_seq at 0"},
    {"encoder_decoder_checkpoints_in_full", "an encoder-decoder is modelled with checkpointing none or full"},
    {"selective_experts_not_modelled",
     "selective checkpointing of mixtures of experts is modelled for torchtitan's stacks alone; use full "
     "checkpointing"},
    {"seq_beyond_positions", "the model has no position embeddings beyond max_position_embeddings"},
    {"old_modules_not_modelled", "of transformers 4, only Llama, Mistral, Qwen 2 and Qwen 3 are modelled"},
    {"changed_logits_not_modelled",
     "losses that take the output layer in are modelled where it is the last layer; this family scales, caps or biases "
     "its logits"},
    {"course_needs_a_decoder", "the course's rules are for decoders"},
    {"adapter_setting_not_modelled", "no key of a recipe says this; it is not modelled yet"},
    {"adapters_need_a_decoder", "LoRA adapters are put on decoder layers, which a plain stack has not"},
    {"encoder_base_not_quantised",
     "a quantised base is not modelled for BERT, RoBERTa and ViT; use method lora or full"},
    {"images_do_not_fit",
     "the tokens of a sequence's images, and one of text before each, must fit into seq; take fewer images or a longer "
     "sequence"},
    {"image_size_is_fixed",
     "image_height and image_width are for models that take images as large as they are: Qwen2-VL, Qwen2.5-VL and, in "
     "tiles, Llama 4; this one has one size for all"},
    {"convolution_adapter_not_modelled",
     "PEFT finds the convolution of the patches by this name, too, whose adapter is not modelled; write attn.proj for "
     "the attention's output"},
    {"image_too_narrow", "an image more than 200 times as long as wide is refused by this model's processor"},
    {"tower_wants_non_reentrant_checkpointing",
     "the layers of Llama 4's vision tower are called in a way that loses their gradients under reentrant "
     "checkpointing; use checkpointing full"},
    {"image_mask_not_modelled",
     "Gemma 3 with images gives attention a mask, which math and cudnn attention are not modelled with; use sdpa, "
     "efficient or eager"},
    {"image_parallelism_not_modelled",
     "models with images are modelled with DDP, FSDP2 and ZeRO 1 and 2, not with FSDP1 and ZeRO 3; LLaVA with its "
     "tower frozen "
     "only, as layers behind the chosen features get no gradient"},
    {"router_takes_no_adapter",
     "PEFT cannot adapt the router of this model, which all-linear asks for; name the layers, such as o_proj, "
     "gate_proj, "
     "up_proj and down_proj"},
    {"flash_has_no_chunks",
     "flash attention cannot see in chunks, and the sequence is longer than one; use sdpa or eager, or a shorter seq"},
    {"router_cannot_be_quantised",
     "transformers 5 takes the weight of this model's router as it is, which fails where bitsandbytes has quantised "
     "it; use method lora or full"},
    {"target_names_no_module",
     "no linear layer has this name; use all-linear, or names from the model such as q_proj and down_proj"},
    {"dora_needs_an_adapter", "DoRA belongs to method lora or qlora"},
    {"autocast_needs_16_bit_weights",
     "autocast is the key for bf16 weights under autocast; with fp32 weights use precision amp-bf16"},
    {"flash_needs_16_bits",
     "flash and cuDNN attention take 16-bit tensors only; here queries and keys are fp32. Use sdpa, or autocast"},
    {"efficient_needs_equal_heads", "PyTorch's memory-efficient kernel takes no grouped key/value heads. Use sdpa"},
    {"sliding_window_mask_not_modelled",
     "beyond the model's sliding window, attention takes a mask, which math and cudnn attention and stack hf-4 are "
     "not "
     "modelled with; use sdpa, flash or eager, or a shorter seq"},
    {"plain_stack_generates_nothing", "a plain stack of layers generates no text"},
    {"only_in_training", "this belongs to training; leave it at its default while generating"},
    {"int8_base_wants_lora", "int8 weights are a frozen base: use method lora, without DoRA, with precision bf16"},
    {"only_while_generating", "this belongs to task generate; leave it at its default in training"},
    {"quantised_weights_compute_in_16_bits", "int8 and NF4 weights compute in 16 bits; use precision bf16"},
    {"quantized_cache_needs_groups_of_64",
     "quanto quantises keys and values in groups of 64; key/value heads times head_dim must be a multiple of it"},
    {"quantized_cache_has_no_window", "a quantised cache knows no sliding window; use a dynamic one"},
    {"generation_not_modelled_for_family", "generation is not modelled for this family yet"},
    {"window_of_some_layers_not_modelled",
     "this model's sliding window is on some layers only, which is not modelled while generating"},
    {"adapters_not_modelled_in_generation", "generating with unmerged adapters is not modelled yet; use method full"},
    {"autocast_not_modelled_in_generation", "generating under autocast is not modelled yet"},
    {"masked_attention_not_modelled",
     "a static cache or a full sliding window takes a mask, which is not modelled with this attention; use sdpa or "
     "eager"},
    {"static_window_cache_not_modelled", "static caches of sliding windows are not modelled yet"},
    {"graph_not_modelled_with_this_cache", "without no_grad only the dynamic cache is modelled"},
    {"torchtune_builds_llama_and_mistral",
     "of torchtune's models, Llama and Mistral are modelled: no biases, heads that make up the hidden size"},
    {"torchtune_nf4_not_modelled",
     "torchtune's NF4 weights (torchao) are not modelled yet; use method lora, or stack hf"},
    {"torchtune_dora_not_modelled", "torchtune's DoRA is not modelled yet"},
    {"torchtune_adapters_follow_the_model", "torchtune's adapters have the model's dtype; set adapter_dtype to it"},
    {"torchtune_has_no_autocast", "torchtune trains in one dtype, bf16 or fp32, without autocast"},
    {"torchtune_calls_sdpa", "torchtune calls scaled_dot_product_attention; set attention to sdpa"},
    {"torchtune_checkpointing_not_modelled", "of torchtune's checkpointing, none and full are modelled"},
    {"torchtune_loss_not_modelled", "of torchtune's losses, full and chunked (CEWithChunkedOutputLoss) are modelled"},
    {"torchtitan_builds_llama_and_qwen3",
     "of torchtitan's models, Llama 3 and (since 0.2) Qwen 3 and DeepSeek V3 are modelled: no biases, Llama's heads "
     "make "
     "up the hidden size, all of Qwen's layers have experts or none has"},
    {"torchtitan_trains_in_full", "torchtitan pretrains: method full, weights unquantised"},
    {"torchtitan_precisions",
     "torchtitan computes in bf16 or fp32: precision fp32 (with or without fsdp), bf16 or, on one GPU, amp-bf16"},
    {"torchtitan_steps_with_adamw",
     "torchtitan steps with torch.optim.AdamW: adamw_fused, adamw_foreach or adamw_forloop"},
    {"torchtitan_calls_sdpa",
     "torchtitan calls scaled_dot_product_attention; set attention to sdpa, or to flash or cudnn for one of its "
     "kernels"},
    {"torchtitan_checkpointing_not_modelled",
     "of torchtitan's checkpointing, none, full and selective (per operator) are modelled"},
    {"torchtitan_loss_not_modelled",
     "of torchtitan's losses, cross-entropy over full logits is modelled, and in chunks with torchtitan (not under "
     "DDP) "
     "and, without tensor parallelism, with 0.0.2"},
    {"torchtitan_chunks_are_equal", "torchtitan's chunked loss wants a number of tokens that 8 divides"},
    {"torchtitan_has_units_of_its_own", "torchtitan shards in units of its own: units titan, before 0.2 units layers"},
    {"tp_cuts_the_vocabulary",
     "torchtitan's tp cuts the vocabulary's rows, so it must divide them, and embedding and output layer share no "
     "weight"},
    {"torchtitan_cuts_the_sequence",
     "torchtitan's tensor parallelism always cuts the sequence, too; set sequence_parallel with tp, and only with it"},
    {"torchtitan_cp_shards",
     "with torchtitan's context parallelism the ranks of a sequence share FSDP's shards; set fsdp to 2"},
    {"torchtitan_stages_have_layers",
     "this model has too few layers for as many stages as torchtitan makes of pp (two a rank where they interleave)"},
    {"torchtitan_stages_share_no_weight", "torchtitan's pipelines have no tied embeddings"},
    {"torchtitan_pipelines_of_shards",
     "torchtitan's pipelines are modelled of FSDP's shards (fsdp 2) or, in fp32 or bf16 throughout, without data "
     "parallelism, and without context parallelism"},
    {"torchtitan_counts_micro_batches",
     "torchtitan's micro-batches of a step are micro_batches, of batch sequences each; leave grad_accum at 1"},
    {"torchtitan_interleaving",
     "the interleaved schedule is modelled for torchtitan 0.0.2 and 0.1, with pp, and with micro_batches in equal "
     "rounds: as many as pp goes whole into them must divide them"},
    {"float8_all_gather_wants_compiled_float8",
     "float8_all_gather is modelled with float8, compile and fsdp 2 that gathers in bf16"},
    {"torchtitan_experts_by_data_alone",
     "torchtitan's mixtures of experts are modelled with data and expert parallelism alone: leave tp, cp and pp at 1 "
     "and "
     "offload at none"},
    {"torchtitan_ep_shards", "torchtitan's expert parallelism goes with FSDP's shards; set fsdp to 2"},
    {"torchtitan_cuts_experts_apart",
     "with more ranks (dp) than experts in a layer torchtitan shards each expert's rows, which is not modelled"},
    {"float8_not_modelled",
     "float8 is modelled for the torchtitan stacks alone; uncompiled, without autocast and tensor parallelism"},
    {"chunks_need_a_token_each", "torchtune cuts each sequence into 8 chunks, which need a token each"},
    {"stack_drops_outputs", "this stack lets the outputs go before backward"},
    {"torchtune_shards_not_modelled", "torchtune on several GPUs is not modelled yet; stack hf is"},
    {"native_computes_llama_and_its_like",
     "the probe's own operators are written for llama, mistral, qwen2 and qwen3 (SwiGLU, whole heads turned, no "
     "dropout inside attention)"},
    {"native_has_no_int8",
     "stack native trains 16- or 32-bit weights, or adapters on an NF4 base (qlora); stack hf has int8"},
    {"native_has_no_autocast", "stack native computes in its weights' dtype: precision bf16 or fp32, without autocast"},
    {"native_steps_in_one_kernel", "stack native updates a parameter in one kernel: optimizer adamw_fused or sgd"},
    {"native_attention", "stack native has flash attention of its own (sdpa or flash) and cuDNN's (cudnn)"},
    {"native_has_no_window", "stack native's attention has no sliding window: seq is at most the window"},
    {"native_checkpointing", "of checkpointing, stack native has none and full"},
    {"native_loss_is_in_place", "stack native's loss turns the full logits into their gradient in place: loss full"},
    {"native_adapters_are_plain", "stack native has no DoRA"},
    {"native_shards_nothing", "on several GPUs stack native averages gradients (dp) and shards nothing; stack hf does"},
    {"native_has_no_buckets", "stack native averages gradients where they lie: it has no buckets to view"},
    {"course_cuts_by_data_only", "the course's rules of thumb know data parallelism: dp, with zero or fsdp"},
    {"megatron_builds_gpt_and_llama",
     "of Megatron-Core's models, GPT (LayerNorm, GELU, learned positions, biases) and Llama (RMSNorm, SwiGLU, rotary), "
     "with experts as Mixtral's or Qwen's too, are modelled"},
    {"megatron_trains_in_full", "stack megatron trains every parameter; use method full"},
    {"megatron_has_precisions_of_its_own",
     "Megatron's precisions are megatron-bf16 (fp32 main gradients) and megatron-bf16-bf16grad"},
    {"megatron_steps_with_adam", "of Megatron's optimizers, Adam is modelled (adamw_fused)"},
    {"tp_cuts_heads_and_width", "tp must divide the attention heads, the key/value heads and the MLP's width"},
    {"ep_needs_experts", "ep and etp spread the experts of a mixture over ranks; this model has none"},
    {"ep_divides_the_experts", "ep must divide the number of experts of a layer"},
    {"etp_cuts_the_experts_width", "etp (0: tp) must divide the width of an expert's MLP"},
    {"ep_divides_the_ranks",
     "the ranks of a pipeline stage (tp x cp x dp) hold whole sets of experts: etp (0: tp) times ep must divide them"},
    {"experts_want_the_sequence_cut",
     "Megatron trains experts under tensor parallelism with sequence parallelism only: set sequence_parallel"},
    {"sequence_parallel_needs_tp", "sequence parallelism belongs to tensor parallelism: set tp to 2 or more"},
    {"sequence_parallel_cuts_the_sequence", "with sequence parallelism tp must divide seq"},
    {"plans_need_link_rates", "link rates of this card's machines are not in the catalogue"},
    {"pp_cuts_layers_evenly",
     "pp must divide the number of layers, or the layers with embedding and loss counted as one each; other cuts are "
     "not modelled"},
    {"megatron_shards_the_optimizer",
     "Megatron's distributed optimizer is zero 1; without it zero is 0, and fsdp is not modelled"},
    {"interleaving_takes_micro_batches_in_groups",
     "the interleaved schedule takes micro-batches in groups of pp: pp of 2 or more must divide micro_batches"},
    {"stages_of_unequal_layers",
     "decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers are of stack megatron's 1f1b schedule "
     "with "
     "pp above 1; the stages between have equal numbers of the other layers"},
    {"chunks_cut_interleaved_stages",
     "num_layers_per_virtual_pipeline_stage is of stack megatron's interleaved schedule and divides a stage's layers"},
    {"megatron_latent_attention",
     "Megatron's multi-latent attention is computed with attention eager, and where tp is above 1 with "
     "sequence_parallel; cp and transformer_impl local are not modelled with it"},
    {"local_modules_are_megatrons",
     "transformer_impl local is of stack megatron, for models with LayerNorm and with attention eager, where its fused "
     "softmax runs: seq above 16 and up to 4096, a multiple of 4, and batch times a GPU's heads a multiple of 4 (of 8 "
     "with seq up to 128)"},
    {"megatron_counts_micro_batches", "Megatron's micro-batches of a step are micro_batches; leave grad_accum at 1"},
    {"megatron_attention_not_modelled",
     "of Transformer Engine's attention, cuDNN's (sdpa, cudnn), flash attention (flash) and eager (unfused) are "
     "modelled"},
    {"megatron_recomputes_none_core_or_full",
     "Megatron recomputes nothing, core attention (selective) or whole layers (full)"},
    {"recomputed_layers_want_full",
     "recompute_method and recompute_num_layers say which layers stack megatron recomputes with checkpointing full"},
    {"megatron_loss_is_vocab_parallel",
     "Megatron's loss is over a vocabulary cut among tp ranks; use full, vocab_parallel or "
     "vocab_parallel_fused"},
    {"cp_cuts_the_sequence_in_pairs",
     "context parallelism gives each of cp ranks two pieces of the sequence: 2 cp must divide seq"},
    {"cp_wants_fused_attention", "context parallelism works with fused attention; use sdpa, cudnn or flash"},
    {"cp_a2a_ranks_divide",
     "the ranks that exchange heads (cp with a2a, cp_a2a_ranks with a2a_p2p) must divide cp and, times tp, the heads "
     "of "
     "queries and of keys"},
    {"torchtitan_rotates_keys_and_values",
     "torchtitan's context parallelism rotates keys and values: cp_comm_type is auto, all_gather or p2p"},
    {"stack_not_modelled",
     "this stack is not modelled yet; hf, hf-4, torchtune, torchtitan, megatron and native (decoders) and course are"},
    {"optimizer_not_modelled", "the course's rules of thumb know no states of this optimizer; stack hf does"},
    {"precision_not_modelled", "bf16, amp-bf16 and fp32 are modelled (bf16 for qlora)"},
    {"plain_stack_has_no_layers_to_checkpoint",
     "checkpointing is applied to decoder layers, which a plain stack has not"},
    {"loss_not_modelled", "a loss over a vocabulary split among GPUs is not modelled yet"},
    {"plain_stack_has_a_loss_of_its_own", "a plain stack ends in a mean of squares; loss belongs to language models"},
    {"loss_needs_two_tokens", "this loss drops the last position, so a sequence needs at least 2 tokens"},
    {"liger_not_modelled",
     "Liger-Kernel's norms, rotary embedding and gated MLPs are modelled in the stacks hf and hf-4 for Llama, Mistral, "
     "Qwen 2, Qwen 3, Granite, SmolLM3, Phi-3, OLMo 2 and text models of Gemma, where whole heads are turned; switch "
     "liger off (its loss, loss = fused_linear, is a setting of its own)"},
    {"liger_writes_over_what_is_kept",
     "Liger-Kernel writes gradients over tensors that selective checkpointing keeps; use checkpointing none or full"},
    {"compile_not_modelled", "torch.compile is modelled for the torchtitan stacks and torchtune alone"},
    {"fsdp_needs_ranks", "FSDP spreads a model over several GPUs; dp says how many, and is 1"},
    {"ddp_needs_ranks", "buckets belong to DDP: dp of 2 or more, without FSDP and ZeRO"},
    {"deepspeed_keys_want_a_stage",
     "reduce_bucket_size, prefetch_bucket_size, param_persistence_threshold, max_live_parameters, max_reuse_distance, "
     "sub_group_size, overlap_comm, reduce_scatter and deepspeed are DeepSpeed's; set zero to 1, 2 or 3, or leave them "
     "alone"},
    {"fsdp1_cannot_adapt_experts",
     "PEFT reads adapters of experts where FSDP1 has not gathered them: such a step fails; use fsdp 2"},
    {"fsdp1_checkpoints_decoder_layers",
     "accelerate's fsdp_activation_checkpointing changes something under fsdp 1 alone, with checkpointing, for "
     "decoders "
     "of transformers"},
    {"titan_units_are_fsdp2s", "torchtitan's units are FSDP2's; use units layers with fsdp 1"},
    {"zero_or_fsdp", "DeepSpeed's ZeRO and FSDP both shard the model; set one of zero and fsdp to 0"},
    {"zero_needs_ranks",
     "ZeRO spreads a model's states over several GPUs, and dp is 1; one GPU is modelled with offloading (stage 3: "
     "offload params)"},
    {"zero_casts_to_16_bits",
     "under DeepSpeed precision bf16 (or amp-bf16) and amp-fp16 are modelled: the engine casts the model to 16 bits, "
     "and "
     "nothing runs under autocast"},
    {"zero3_expert_adapters_not_modelled", "adapters of experts under ZeRO-3 are not modelled; ZeRO-2 is"},
    {"offload_steps_with_adam", "an offloaded optimizer is DeepSpeedCPUAdam; use adamw_fused"},
    {"params_offload_needs_zero3", "DeepSpeed offloads parameters in stage 3 only; use zero 3, or offload optimizer"},
    {"sharded_4_bit_not_modelled", "sharded 8-bit weights are not modelled; use DDP or ZeRO-2, or 4 bits"},
    {"sharded_4_bit_wants_one_dtype",
     "4-bit weights are sharded as numbers of the dtype that everything else has: param_dtype bf16"},
    {"fsdp_has_a_mixed_precision_of_its_own",
     "FSDP casts by param_dtype and reduce_dtype; precision is the dtype of the shards, fp32 or bf16, without "
     "autocast"},
    {"fsdp_needs_non_reentrant_checkpointing",
     "under FSDP full and selective checkpointing are modelled, and full-reentrant with fsdp 1"},
    {"titan_units_share_no_weight",
     "embedding and output layer share a weight, so they cannot be units apart; use units layers"},
    {"titan_units_need_the_head_called",
     "this loss reads the output layer without calling it, so a unit of its own would not be gathered; use units "
     "layers"},
    {"optimizer_not_for_shards",
     "this optimizer wants whole matrices, or knows no sharded tensors; torch.optim AdamW and SGD are modelled under "
     "FSDP and ZeRO"},
    {"parallelism_not_modelled",
     "of several GPUs, DDP (dp), FSDP (dp, fsdp 1 or 2) and DeepSpeed's ZeRO (dp, zero) of decoders are modelled yet"},
    {"offload_not_modelled",
     "offloading is modelled under DeepSpeed, optimizer with zero 1, 2 or 3, and params with zero 3 or fsdp"},
};

// Kinds of wrong files whose id is no file's name.
constexpr Reason kFiles[] = {
    {"empty", "an empty file"},
    {"json_list", "a JSON list"},
    {"git_lfs_pointer", "a Git LFS pointer (git lfs pull fetches the file)"},
    {"utf16_text", "UTF-16 text"},
    {"html", "a web page"},
    {"measured", "a measured result"},
    {"report", "a report"},
    {"recipe", "a recipe"},
};

std::string file_or_itself(const std::string& id) {
  for (const Reason& file : kFiles) {
    if (id == file.id) return file.sentence;
  }
  const bool vowel = std::string_view("aeio").find(id.empty() ? ' ' : id.front()) != std::string_view::npos;
  return std::string(vowel ? "an " : "a ") + id + " file";
}

void replace(std::string& text, std::string_view mark, std::string_view value) {
  const std::size_t at = text.find(mark);
  if (at != std::string::npos) text.replace(at, mark.size(), value);
}

std::string reason_or_itself(const std::string& expected) {
  for (const Reason& reason : kReasons) {
    if (expected == reason.id) return reason.sentence;
  }
  return expected;
}

}  // namespace

std::string say(const Problem& problem, const std::string& document) {
  std::string text = kSentences[static_cast<std::size_t>(problem.code)];
  replace(text, "{where}", problem.where);
  replace(text, "{read}", problem.code == ProblemCode::wrong_file ? file_or_itself(problem.read) : problem.read);
  replace(text, "{expected}", reason_or_itself(problem.expected));
  if (!problem.nearest.empty()) text += " Did you mean " + problem.nearest + "?";
  return document + ": " + text;
}

}  // namespace ledger
