// norms.h - the normalisations of decoders, each composed as its family's code composes it.
#pragma once

#include <string>

#include "core/config/style.h"
#include "core/models/modules.h"

namespace ledger {

struct Norm {
  const char* name = "";
  NormKind kind = NormKind::rms;
  Tensor weight;  // [h]; none where the kind has no parameters
  Tensor bias;    // nn.LayerNorm's
  double eps = 1e-6;
  bool liger = false;          // LigerRMSNorm in its place
  bool liger_in_place = true;  // its backward writes over the gradient that comes

  static Norm make(ModuleBuilder& builder, const std::string& path, const char* name, NormKind kind, Dim size,
                   double eps);
  Tensor forward(const Tensor& x) const;
};

}  // namespace ledger
