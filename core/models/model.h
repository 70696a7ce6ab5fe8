// model.h - what the training step needs of a model: its parameters, and a forward pass that ends in the loss.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/models/kv_cache.h"
#include "core/models/modules.h"
#include "core/trace/operators.h"

namespace ledger {

class Model {
 public:
  virtual ~Model() = default;

  // The batch on the device, made once and kept by the training loop: token ids [b, s], or features of a plain stack.
  virtual Tensor make_inputs(Tape& tape) = 0;

  // The framework's forward with labels: returns the loss, a scalar. Everything local to it dies when it returns.
  virtual Tensor forward(const Tensor& inputs) = 0;

  // The forward of generation: logits of the last position, or of all of them, for the tokens `ids` [b, n] at
  // `positions` [b, n], whose keys and values go into `cache`. Models that cannot generate are refused before
  // (generate.h).
  virtual Tensor next_logits(const Tensor& ids, const Tensor& positions, KvCache& cache, bool last_only);

  // cache.skip_to(seen), under the names of this model's modules.
  virtual void skip_tokens(KvCache& cache, std::uint64_t seen) { cache.skip_to(seen); }

  const std::vector<Tensor>& trainable() const { return trainable_; }

  // What the training loop keeps of the outputs beside the loss: the logits, with keep_outputs. Dropped by
  // drop_outputs().
  const Tensor& outputs() const { return outputs_; }
  const Tensor& image_outputs() const { return image_outputs_; }  // beside them, what was seen
  virtual void replace_outputs(Tensor outputs, Tensor of_images = Tensor()) {
    outputs_ = std::move(outputs);
    image_outputs_ = std::move(of_images);
  }

 protected:
  std::vector<Tensor> trainable_;
  Tensor outputs_, image_outputs_;
};

struct ModelOptions {
  DType weights = DType::bf16;
  std::uint64_t batch = 1;
  std::uint64_t seq = 2048;
  std::uint64_t decoder_seq = 0;                      // as the recipe says it
  Checkpointing checkpointing = Checkpointing::none;  // around every decoder layer
  Attention attention = Attention::sdpa;
  LinearPolicy linears;
  bool input_requires_grad =
      false;                  // enable_input_require_grads: the embedding's output becomes a leaf that needs a gradient
  bool keep_outputs = false;  // the training loop holds on to the model's output: the logits, where there are any
  Loss loss = Loss::full;
  bool liger = false;            // Liger-Kernel's norms, rotary embedding and SwiGLU in place of transformers'
  std::uint64_t grad_accum = 1;  // where the model itself divides its loss
  bool compile = false;          // torch.compile as the stack applies it
  bool float8 = false;           // products of decoder layers
  std::uint64_t tp = 1, cp = 1;  // ranks that share every matrix, and every sequence, as the stack has them do it
  std::uint64_t tp_rank = 0, cp_rank = 0;  // which of them it is
  std::uint64_t ep = 1, ep_rank = 0;       // ranks that have other experts
  bool cp_gathers = true;                  // keys and values go around by an all-gather, not from rank to rank
  bool checkpoints_in_units = false;       // a recomputation does not run the units' hooks again
  ParameterUnits* units = nullptr;         // who spreads the parameters over GPUs, if anybody does; outlives the model
  std::uint64_t units_before = 0;          // layers of an encoder before the decoder's, each a unit
  std::uint64_t images = 1;                // of a sequence, where the model takes any
  std::uint64_t image_height = 0, image_width = 0;  // as the recipe says them
  bool freeze_vision_tower = false;
  Stack stack = Stack::hf;  // whose modules; hf_4: repeated keys and values, shifted fp32 logits
};

std::unique_ptr<Model> build_model(Tape& tape, const ModelConfig& config, const ModelOptions& options);

std::unique_ptr<Model> build_llama(Tape& tape, const ModelConfig& config, const ModelOptions& options);    // llama.cc
std::unique_ptr<Model> build_bert(Tape& tape, const ModelConfig& config, const ModelOptions& options);     // bert.cc
std::unique_ptr<Model> build_t5(Tape& tape, const ModelConfig& config, const ModelOptions& options);       // t5.cc
std::unique_ptr<Model> build_vit(Tape& tape, const ModelConfig& config, const ModelOptions& options);      // vit.cc
std::unique_ptr<Model> build_qwen_vl(Tape& tape, const ModelConfig& config, const ModelOptions& options);  // qwen_vl.cc
std::unique_ptr<Model> build_llama4_images(Tape& tape, const ModelConfig& config,
                                           const ModelOptions& options);  // llama4_images.cc
std::unique_ptr<Model> build_image_text(Tape& tape, const ModelConfig& config,
                                        const ModelOptions& options);  // image_text.cc
std::unique_ptr<Model> build_plain(Tape& tape, const ModelConfig& config, const ModelOptions& options);  // plain.cc
std::unique_ptr<Model> build_torchtune(Tape& tape, const ModelConfig& config,
                                       const ModelOptions& options);  // torchtune.cc
std::unique_ptr<Model> build_torchtitan(Tape& tape, const ModelConfig& config,
                                        const ModelOptions& options);  // torchtitan.cc

std::unique_ptr<Model> build_native(Tape& tape, const ModelConfig& config, const ModelOptions& options);  // native.cc

// A layer as `kind` has it computed: with its tensors kept, or made again in backward from `hidden`, whose layer it is.
Tensor checkpointed(Checkpointing kind, const std::function<Tensor(const Tensor&)>& layer, const Tensor& hidden);

// Token ids [b, s], as decoders' make_inputs() loads them; `attr` as ops.h says of load_tokens.
Tensor load_token_ids(Tape& tape, Dim b, Dim s, const char* name = "input_ids", Attr attr = {});
// Pixels as an image processor makes them: fp32 as a rule, whatever the model's dtype.
Tensor load_pixels(Tape& tape, const Shape& shape, DType dtype = DType::f32);

}  // namespace ledger
