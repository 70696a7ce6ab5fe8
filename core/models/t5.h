// t5.h - T5 with its output layer: an encoder and a decoder that looks at what the encoder made, both with a learned
// bias on their scores by distance, which the first layer makes and all others take over.
//
// The encoder reads the recipe's seq tokens, the decoder decoder_seq labels, moved one to the right.
//
// Source: transformers 5.12 models/t5/modeling_t5.py, T5ForConditionalGeneration, whose attention is written out.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "core/models/decoder_dims.h"
#include "core/models/t5_attention.h"

namespace ledger {

class T5 : public Model {
 public:
  T5(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;
  void replace_outputs(Tensor outputs, Tensor of_images = Tensor()) override;

 private:
  // T5LayerFF.
  struct Feed {
    Linear wi, wi_1, wo;  // wi_1: of gated ones
    Norm norm;
  };
  struct Block {
    T5Attention self;
    std::optional<T5Attention> cross;  // of the decoder
    Feed feed;
  };
  struct Stack {
    const char* name = "";
    bool decodes = false;
    Embedding embed_tokens;
    std::vector<Block> blocks;
    Norm final_norm;
  };
  // What every block gets beside the hidden states, by position: checkpointing binds all of it.
  struct Context {
    Tensor mask, bias, encoded, cross_bias;
  };
  Stack make_stack(ModuleBuilder& builder, const char* name, const Tensor& shared, std::uint64_t layers);
  Block make_block(ModuleBuilder& builder, const std::string& path, std::size_t index, bool decodes) const;
  Feed make_feed(ModuleBuilder& builder, const std::string& path) const;

  Tensor run_stack(const Stack& stack, const Tensor& ids, const Tensor& encoded) const;
  CheckpointOutputs run_block(const Block& block, const Tensor& hidden, const Context& context) const;
  CheckpointOutputs forward_block(const Block& block, const Tensor& hidden, const Context& context) const;
  Tensor feed_forward(const Feed& feed, const Tensor& hidden) const;
  Tensor dense(const Feed& feed, const Tensor& hidden) const;
  Tensor drop(const Tensor& x) const;

  ModelConfig config_;
  DecoderDims dims_;
  ModelOptions options_;
  Dim targets_;
  Tensor labels_;
  Tensor encoder_output_;  // in what the training loop keeps, beside the logits
  Embedding shared_;
  Stack encoder_, decoder_;
  Linear lm_head_;
};

}  // namespace ledger
