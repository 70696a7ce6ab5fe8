// native.h - a decoder of the llama family in the probe's own fused operators (trace/fused_ops.h): what a training step
// needs at least, without giving up its shapes. The modules and their names are Hugging Face's, so are the parameters.
//
// Between layers travel the residual stream and what the last sublayer adds to it: the next norm adds them up. Kept for
// backward are, a layer: both sums, queries, keys, values, the attention's result, gate and up. What the norms and the
// activation made of them is made again.
#pragma once

#include <vector>

#include "core/models/decoder_dims.h"
#include "core/models/decoder_layer.h"

namespace ledger {

class NativeDecoder : public Model {
 public:
  NativeDecoder(Tape& tape, const ModelConfig& config, const ModelOptions& options);

  Tensor make_inputs(Tape& tape) override;
  Tensor forward(const Tensor& ids) override;

 private:
  struct Stream {
    Tensor residual, added;  // nothing was added yet where the second is empty
  };

  Stream decode(const Tensor& ids) const;
  Stream run_layer(std::size_t index, Stream stream) const;
  Stream forward_layer(const DecoderLayer& layer, const Stream& stream) const;
  Tensor attend_to(const SelfAttention& attention, const Tensor& x) const;
  Tensor heads_of(const Linear& projection, const std::optional<Norm>& norm, const Tensor& x, Dim count,
                  bool turned) const;

  DecoderDims dims_;
  ModelOptions options_;
  const ModuleNames& names_;
  Tensor inverse_frequencies_;
  Embedding embed_tokens_;
  std::vector<DecoderLayer> layers_;
  Norm norm_;
  Linear lm_head_;
};

}  // namespace ledger
