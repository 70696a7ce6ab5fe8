// head_norms.h - layer norms over single heads, with a weight of its own for each.
//
// Source: transformers 5.12 models/stablelm/modeling_stablelm.py, StableLmLayerNormPerHead.
#pragma once

#include <string>
#include <vector>

#include "core/models/norms.h"

namespace ledger {

struct HeadNorms {
  const char* name = "";
  std::vector<Norm> norms;  // by head, without biases

  static HeadNorms make(ModuleBuilder& builder, const std::string& path, const char* name, Dim heads, Dim size,
                        double eps);
  Tensor forward(const Tensor& states) const;  // [b, heads, s, d]
};

}  // namespace ledger
