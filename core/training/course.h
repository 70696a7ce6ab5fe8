// course.h - the stack `course`: the chapter's rules of thumb as a trace of a few large tensors.
//
// Bytes per trainable parameter by precision and optimizer, activations as L x b x s x (6 h + 3 ffn) x 2 bytes, or
// L x b x s x h x 2 with checkpointing. With dp, a whole copy a GPU, or the copies that zero and fsdp cut divided by
// dp; what is gathered for a moment is left out, as in the chapter. For teaching, beside the exact accounting of the
// other stacks. Source: the course chapter's ledger (docs/course.md); figures C2-C12, C15, C16, C20, C21; of zero 1 to
// 3: Table 1 of Rajbhandari et al. (arXiv 1910.02054).
#pragma once

#include "core/base/problem.h"
#include "core/config/model_config.h"
#include "core/config/recipe.h"
#include "core/trace/trace.h"

namespace ledger {

// Bytes per trainable parameter, one entry per copy that a recipe keeps.
struct CourseBytes {
  std::uint64_t weights = 0;
  std::uint64_t gradients = 0;
  std::uint64_t master_weights = 0;
  std::uint64_t optimizer_states = 0;
  std::uint64_t moments = 0;         // how many tensors the states are
  std::uint64_t transient_copy = 0;  // of each weight, during the forward pass only

  std::uint64_t resident() const { return weights + gradients + master_weights + optimizer_states; }
};

CourseBytes course_bytes(const Recipe& recipe);

// Trainable parameters of LoRA on every linear layer of the decoder.
std::uint64_t course_adapter_parameters(const ModelConfig& config, const Recipe& recipe);

// The frozen base of LoRA and QLoRA, none when everything is trained: 2 bytes a parameter, or 0.55 in 4 bits.
Bytes course_frozen_bytes(const Recipe& recipe, std::uint64_t parameters);

// Layer inputs or the rough full activations, in bytes. Linear in b, s, L and h; independent of the parameter count.
Bytes course_activations(const ModelConfig& config, const Recipe& recipe);

// One copy of the weights and nothing else: 2, 1 or half a byte a parameter.
Bytes course_inference_bytes(const Recipe& recipe, std::uint64_t parameters);

// With task: generate, the weights and a cache of keys and values that grows from the prompt to the whole text.
Result<Trace> trace_course(const ModelConfig& config, const Recipe& recipe, std::uint32_t steps);

}  // namespace ledger
