#include "core/models/head_norms.h"

namespace ledger {

HeadNorms HeadNorms::make(ModuleBuilder& builder, const std::string& path, const char* name, Dim heads, Dim size,
                          double eps) {
  const Tape::Scope scope(builder.tape(), name);
  HeadNorms all;
  all.name = name;
  for (std::uint64_t head = 0; head < heads.size; ++head) {
    const Tape::Scope number(builder.tape(), "norms.*");
    Norm norm;
    norm.name = "norms.*";
    norm.kind = NormKind::layer;
    norm.eps = eps;
    norm.weight = builder.parameter(path + name + ".norms." + std::to_string(head), {size}, Parameter::Role::norm);
    all.norms.push_back(norm);
  }
  return all;
}

// A list of all results before they are joined.
Tensor HeadNorms::forward(const Tensor& states) const {
  const Tape::Scope scope(states.tape(), name);
  const std::vector<Tensor> heads = split_each(states, 1);
  std::vector<Tensor> normed;
  for (std::size_t i = 0; i < norms.size(); ++i)
    normed.push_back(norms[i].forward(heads[i]));
  return cat_all(normed, 1, states.dim(1));
}

}  // namespace ledger
