// torchtitan.h - a decoder as torchtitan writes it: Llama 3, Qwen 3 and DeepSeek V3, release by release.
//
// Source: torchtitan models/{llama3,qwen3,deepseek_v3}/model/model.py, models/attention.py, components/loss.py,
// distributed/activation_checkpoint.py and models/llama3/infra/parallelize.py at v0.2.2, and the same in v0.1.0; before
// it models/llama/model.py, models/norms.py and parallelisms/parallelize_llama.py. Scopes follow Python's, as in
// llama.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/models/decoder_dims.h"
#include "core/models/dtensor.h"
#include "core/models/feed_forward.h"
#include "core/models/torchtitan_experts.h"

namespace ledger {

// What a layer's RMSNorm is: a module of torchtitan's own; nn.RMSNorm written out; the same in one kernel
// (PyTorch 2.9).
enum class TitanNorm : std::uint8_t { own, written_out, fused };

// What the loss in eighths takes apart: logits (chunked_cross_entropy_loss, March 2025), or the tokens before the
// output layer (ChunkedLossWrapper, since April 2026).
enum class TitanChunks : std::uint8_t { none, logits, tokens };
inline constexpr std::uint64_t kTitanChunks = 8;

// Whose outputs a pipeline keeps from micro-batch to micro-batch and until its next step: those of every stage; since
// May 2025 (PyTorch 2.8) those of the last one, which are put together in the end; since 0.2.1 it is told to keep none.
enum class TitanOutputs : std::uint8_t { every_stage, last_stage, none };

// Where its versions differ in memory.
struct TitanVersion {
  Stack stack;
  TitanNorm norm;
  bool cudnn_first;    // of scaled_dot_product_attention's backends
  bool cudnn_kept;     // _op_sac_save_list
  bool ends_in_root;   // embedding, norm and output layer belong to FSDP's root, and the last layer stays gathered
  bool compiles_loss;  // where it compiles the layers
  bool models_qwen3;
  TitanChunks chunks;
  bool keeps_float8;  // of weights, as torchao of its time
  bool lists_abs;     // _save_list, from November 2024 to February 2025
  TitanOutputs pipeline_outputs;
  bool counts_ends;  // where layers are cut into stages, the embedding and the output layer count as a layer each
  // The last unit's input of a reduce-scatter stays until the next step's first (pytorch/pytorch#144535, January 2025).
  bool keeps_reduced;
  bool interleaves;  // by the timetable that is modelled: PipelineScheduleMulti, without all-gathers of its own
  bool models_experts;
  TitanExperts::Form experts;
};

// nullptr: `stack` is another's.
const TitanVersion* titan_version(Stack stack);

// Layers from `first` on, and which ends of the model they come with.
struct TitanPart {
  std::uint64_t first = 0, layers = 0;
  bool embedding = true, head = true;
};

// A rank of the interleaved schedule has two stages (pipelining_utils.py, generate_split_points).
std::uint64_t titan_stages(const Recipe& recipe);
// The model cut into `stages`; empty: it cannot be. Sources: generate_split_points at 9dec370 (December 2024) and in
// v0.1.0; generate_llm_fqn_per_model_part in v0.2.2.
std::vector<TitanPart> titan_parts(const ModelConfig& config, const TitanVersion& version, std::uint64_t stages);

class TorchtitanDecoder : public Model {
 public:
  TorchtitanDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options, const TitanPart& part);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

  // A pipeline's stage: token ids, or what the stage before sent, to what is sent on, or to the logits.
  Tensor forward_part(const Tensor& input) const;
  Tensor loss_of(const Tensor& logits, const Tensor& labels) const;

 private:
  struct Norm {  // RMSNorm
    const char* name = "";
    Tensor weight;
    double eps = 1e-5;
    TitanNorm kind = TitanNorm::fused;
    Tensor forward(const Tensor& x) const;
  };
  // TransformerBlock. Of latent attention q is wq or, behind wq_a, wq_b, k and v are wkv_a and wkv_b, and what is
  // normed are not heads but what is between the products.
  struct Layer {
    Linear q_a, q, k, v, o;
    Norm q_norm, k_norm;  // Qwen 3's and DeepSeek V3's
    FeedForward feed_forward;
    std::optional<TitanExperts> experts;  // in its place
    Norm attention_norm, ffn_norm;
  };
  struct Heads {
    Tensor q, k;
  };

  Norm make_norm(ModuleBuilder& builder, const std::string& path, const char* name, Dim size, bool compiled) const;
  Layer make_layer(ModuleBuilder& builder, std::size_t index) const;
  void make_head(ModuleBuilder& builder, bool tied);
  void make_attention(ModuleBuilder& builder, const std::string& at, Layer& layer) const;
  void make_latent(ModuleBuilder& builder, const std::string& at, Layer& layer) const;
  void make_rope_cache(Tape& tape);
  Tensor own_tokens(const Tensor& whole, int dim) const;
  void take_own_places(Tape& tape);
  void note_cuts(Trace& trace) const;

  Tensor decode(const Tensor& input) const;
  Tensor logits(const Tensor& hidden) const;
  Tensor whole(const Tensor& x) const;
  Tensor own_part(const Tensor& x) const;
  Tensor embed(const Tensor& ids) const;
  Keep kept() const;
  Tensor call_layer(std::size_t index, const Tensor& x) const;
  Tensor run_layer(const Layer& layer, const Tensor& x) const;
  Tensor attend_to(const Layer& layer, const Tensor& x) const;
  Tensor attend_latent(const Layer& layer, const Tensor& x) const;
  Tensor feed(const Layer& layer, const Tensor& x) const;
  Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v) const;
  Tensor rotate_part(const Tensor& x) const;
  Heads rotate_complex(const Tensor& q, const Tensor& k) const;
  Heads rotate_halves(const Tensor& q, const Tensor& k) const;
  Tensor cross_entropy(const Tensor& pred, const Tensor& labels, Reduction reduction) const;
  Tensor loss_of_logits_by_chunks(const Tensor& pred) const;
  Tensor loss_by_chunks(const Tensor& hidden) const;

  const ModelConfig* config_;
  const TitanVersion& version_;
  TitanPart part_;
  double eps_;
  DecoderDims dims_;  // of this rank's heads, width and vocabulary
  TensorSeat seat_;
  Dim s_local_;  // tokens of a sequence that this rank has between the products
  ModelOptions options_;
  const ModuleNames& names_;
  double rope_theta_;
  bool complex_rope_;  // Llama's; Qwen 3 turns halves by cosine and sine
  bool qk_norm_;
  bool latent_;           // DeepSeek's attention
  bool compiles_layers_;  // and not the loss alone
  // A buffer: freqs_cis as pairs [s, d], or cosine and sine [s, 2 d]. Within context_parallel() it has this rank's
  // tokens alone, and its first contents are kept.
  Tensor rope_cache_, kept_rope_cache_;
  Tensor labels_;
  Embedding tok_embeddings_;
  std::vector<Layer> layers_;
  Norm norm_;
  Linear output_;
};

}  // namespace ledger
