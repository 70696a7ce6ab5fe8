#include "core/models/model.h"

namespace ledger {
namespace {

using Builder = std::unique_ptr<Model> (*)(Tape&, const ModelConfig&, const ModelOptions&);

struct FamilyRow {
  Architecture architecture;
  Stack stack;
  Builder build;
};

constexpr FamilyRow kBuilders[] = {
    {Architecture::llama, Stack::hf, build_llama},
    {Architecture::llama, Stack::hf_4, build_llama},
    {Architecture::llama, Stack::torchtune, build_torchtune},
    {Architecture::llama, Stack::torchtitan, build_torchtitan},
    {Architecture::llama, Stack::torchtitan_0_2_0, build_torchtitan},
    {Architecture::llama, Stack::torchtitan_0_1, build_torchtitan},
    {Architecture::llama, Stack::torchtitan_0_0_2, build_torchtitan},
    {Architecture::llama, Stack::native, build_native},
    {Architecture::plain, Stack::hf, build_plain},
    {Architecture::bert, Stack::hf, build_bert},
    {Architecture::t5, Stack::hf, build_t5},
    {Architecture::vit, Stack::hf, build_vit},
    {Architecture::image_text, Stack::hf, build_image_text},
};

}  // namespace

Tensor Model::next_logits(const Tensor&, const Tensor&, KvCache&, bool) {
  return Tensor();
}

Tensor load_token_ids(Tape& tape, Dim b, Dim s, const char* name, Attr attr) {
  const Tape::Scope scope(tape, name);
  const Tape::In in(tape, Category::inputs);
  Tensor ids = tape.empty(OpKind::load_tokens, {b, s}, DType::i64);
  tape.run(OpKind::load_tokens, {}, {&ids}, attr);
  return ids;
}

Tensor load_pixels(Tape& tape, const Shape& shape, DType dtype) {
  const Tape::Scope scope(tape, "pixel_values");
  const Tape::In in(tape, Category::inputs);
  Tensor pixels = tape.empty(OpKind::load_values, shape, dtype);
  tape.run(OpKind::load_values, {}, {&pixels});
  return pixels;
}

Tensor checkpointed(Checkpointing kind, const std::function<Tensor(const Tensor&)>& layer, const Tensor& hidden) {
  Tape& tape = hidden.tape();
  const auto whole = [layer, hidden] { return layer(hidden); };
  switch (kind) {
    case Checkpointing::none:
      return layer(hidden);
    case Checkpointing::full:
      return tape.checkpoint(whole);
    case Checkpointing::selective:
      return tape.checkpoint(whole, kComputeIntensive);
    case Checkpointing::offload:
      return tape.checkpoint_offloaded(layer, hidden);
    default:
      return tape.checkpoint_reentrant(layer, hidden);
  }
}

std::unique_ptr<Model> build_model(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  for (const FamilyRow& row : kBuilders) {
    if (row.architecture == config.architecture && row.stack == options.stack) return row.build(tape, config, options);
  }
  return nullptr;
}

}  // namespace ledger
