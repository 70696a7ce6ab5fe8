// megatron.h - one pipeline stage of a Megatron-Core GPT model as one tensor-parallel rank lives it, with Transformer
// Engine's fused layers.
//
// Source: Megatron-LM megatron/core (models/gpt/gpt_model.py, models/common/embeddings, transformer/{attention,mlp,
// transformer_layer}.py, tensor_parallel/{layers,cross_entropy,mappings}.py, fusions/) and TransformerEngine pytorch/
// module/{layernorm_linear,linear}.py, attention/dot_product_attention/backends.py, 2026. Tensors are [s, b, h].
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/config/model_config.h"
#include "core/models/attention.h"
#include "core/models/megatron_experts.h"
#include "core/models/megatron_stages.h"

namespace ledger {

// Vocabulary as Megatron pads it: to a multiple of 128 x tp.
std::uint64_t megatron_vocab(const ModelConfig& config, std::uint64_t tp);

class MegatronStage {
 public:
  MegatronStage(Tape& tape, const ModelConfig& config, const MegatronOptions& options, MainGradients& gradients);

  bool is_first(std::uint64_t chunk) const { return o_.stage == 0 && chunk == 0; }
  bool is_last(std::uint64_t chunk) const { return o_.stage + 1 == o_.pp && chunk + 1 == o_.chunks; }

  // A micro-batch in one chunk: from tokens or from `received` to the loss, or to what is sent on. Besides what its
  // graph saves `received` stays, and with it its gradient, until the chunk's next: TransformerBlock.input_tensor.
  Tensor forward(std::size_t chunk, const Tensor& received, std::uint64_t micro_batch);
  Tensor receive() const;           // recv_forward: a leaf that gathers a gradient
  Tensor receive_gradient() const;  // recv_backward
  void send_output(const Tensor& output) const { send(output, stage_after(), 0); }
  void send_gradient(const Tensor& received) const { send(received.grad(), stage_before(), 1); }
  void release(const Tensor& output) const;  // deallocate_output_tensor: one element in place of what was sent

  const Tensor& shared_embedding() const { return shared_embedding_; }  // at both ends of a pipeline; or nothing

 private:
  struct LnLinear {  // TELayerNormColumnParallelLinear, or a norm alone where there is no weight
    const char* name = "";
    Tensor norm, weight, bias;  // norm: weight and bias in one, [2, h] or [1, h]
  };
  struct Latent {
    Tensor q_down, kv_down;  // no q_down: queries are not compressed
    LnLinear q_up, kv_up;
    mutable Tensor angles;
  };
  struct Heads {
    Tensor q, k, v;
    Tensor product;  // that SelfAttention.forward's value is a view of
  };
  struct Layer {
    LnLinear qkv, fc1;
    Tensor proj, proj_bias, fc2, fc2_bias, fc1_bias;
    LnLinear q_norm, k_norm;                 // of every head
    std::optional<Latent> latent;            // in place of qkv, of which the norm alone is left
    std::optional<MegatronExperts> experts;  // in place of fc1 and fc2, of which the norm alone is left
  };
  struct Batch {
    Tensor tokens, positions, labels, loss_mask, attention_mask;
  };

  Tensor parameter(const std::string& path, const Shape& shape, Parameter::Role role, const TensorCut& cut = {},
                   PartsOf parts = PartsOf::none);
  TensorCut cut_of(std::uint64_t local, std::uint64_t inner) const;
  void make_frequencies();
  LnLinear make_ln_linear(const std::string& path, const char* name, Dim out, bool bias);
  MegatronExperts make_experts(const std::string& path);
  LnLinear make_head_norm(const std::string& path, const char* name);
  Layer make_layer(std::uint64_t index);
  void make_attention(Layer& layer, const std::string& path);
  Tensor make_down_projection(const std::string& path, const char* name, Dim rank);
  LnLinear make_up_projection(const std::string& path, const char* name, Dim rank, Dim width);
  Latent make_latent(const std::string& path);
  void make_feed(Layer& layer, const std::string& path);
  Batch load_batch(std::uint64_t chunk, std::uint64_t micro_batch) const;
  megatron::Sharing sharing(const Tensor& weight) const;
  TensorSeat seat() const { return {o_.tp_rank, o_.tp}; }
  std::optional<std::uint64_t> layer_at(std::uint64_t position) const {
    return ledger::layer_at(c_, o_.cut, o_.stage, position);
  }
  std::uint64_t stage_before() const { return (o_.stage + o_.pp - 1) % o_.pp; }
  std::uint64_t stage_after() const { return (o_.stage + 1) % o_.pp; }
  Tensor received(std::uint64_t from, std::int64_t tag) const;
  void send(const Tensor& tensor, std::uint64_t to, std::int64_t tag) const;

  Tensor own_tokens(const Tensor& whole, int dim) const;
  Tensor positions() const;
  Tensor rotary_angles() const;
  void ensure_angles() const;
  Tensor embed(const Batch& batch) const;
  Tensor run_layers(std::size_t chunk, const Tensor& x) const;
  Tensor run_layer(std::size_t position, const Tensor& x) const;
  std::size_t recomputed_to(std::size_t first, std::size_t count) const;
  Tensor layer_forward(const Layer& layer, const Tensor& x) const;
  Tensor feed_forward(const Layer& layer, const Tensor& x) const;
  Heads heads_of(const Layer& layer, const Tensor& mixed) const;
  Tensor down(const Tensor& x, const Tensor& weight, const char* name) const;
  Tensor up(const LnLinear& m, const Tensor& x) const;
  Tensor turned_apart(const Latent& latent, const Tensor& x) const;
  Heads latent_heads(const Latent& latent, const Tensor& x) const;
  Tensor attention(const Layer& layer, const Tensor& x) const;
  Tensor turned(const Tensor& x) const;
  Tensor normed_heads(const LnLinear& m, const Tensor& x) const;
  Tensor core_attention(const Tensor& q, const Tensor& k, const Tensor& v) const;
  struct Folded {
    Tensor query, key, value;  // key [b n, d, s]
  };
  Folded folded(const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor unfolded(const Tensor& context) const;
  double scale_of_scores() const;
  Tensor unfused(const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor dot_product(const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor ln_linear(const LnLinear& m, const Tensor& x) const;
  Tensor norm_then_linear(const LnLinear& m, const Tensor& x) const;
  Tensor row_linear(const Tensor& x, const Tensor& weight, const char* name) const;
  Tensor activate_fused(const Tensor& x, const Tensor& bias) const;
  Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual) const;
  Tensor head_loss(const Tensor& hidden, const Batch& batch);
  const Tensor& memory_buffer(const Shape& shape) const;
  Tensor gather_buffer() const;
  void ensure_workspace() const;
  void ensure_grouped_workspaces() const;

  Tape& tape_;
  ModelConfig c_;
  MegatronOptions o_;
  MainGradients& gradients_;
  Dim b_, s_, s_shard_, h_, ffn_, d_, np_, ng_, vocab_;
  Tensor word_embeddings_, position_embeddings_, output_weight_, shared_embedding_;
  bool latent_ = false;                    // multi-latent attention
  Tensor frequencies_;                     // rotary_pos_emb.inv_freq
  mutable Tensor angles_;                  // what RotaryEmbedding.forward keeps of its first call (lru_cache)
  std::vector<Tensor> set_input_tensors_;  // by chunk
  std::vector<Layer> layers_;              // by position; empty where the embedding or the loss counts as one
  std::uint64_t depth_ = 0;                // positions of a chunk
  LnLinear final_norm_;
  mutable Tensor te_workspace_;                       // allocated at the first product
  mutable std::array<Tensor, 4> grouped_workspaces_;  // nvte_get_num_compute_streams
  mutable Tensor memory_buffer_;  // get_global_memory_buffer "mpu": gathered inputs of the output layer, and local
                                  // modules' inputs and scores
  mutable std::uint64_t memory_buffer_elements_ = 0;
};

}  // namespace ledger
