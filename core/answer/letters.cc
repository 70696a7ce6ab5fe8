#include "core/answer/letters.h"

namespace ledger {

Letters::Letters(const ModelConfig& config, const Recipe& recipe) {
  const auto set = [this](Sym sym, std::uint64_t value) { values_[static_cast<std::size_t>(sym)] = value; };
  set(Sym::b, recipe.batch);
  set(Sym::s, recipe.seq);
  set(Sym::nh, config.num_attention_heads);
  set(Sym::nkv, config.num_key_value_heads);
  set(Sym::d, config.head_dim);
}

std::vector<Factor> Letters::factors(const Shape& shape) const {
  std::vector<Factor> factors;
  for (std::size_t i = 0; i < shape.rank; ++i) {
    const Dim dim = shape[i];
    const auto [first, second] = info(dim.sym).parts;
    const std::uint64_t a = values_[static_cast<std::size_t>(first)];
    const std::uint64_t b = values_[static_cast<std::size_t>(second)];
    if (first != Sym::none && times(a, b) == dim.size) {
      factors.push_back({first, a});
      factors.push_back({second, b});
    } else if (dim.size != 1 || dim.sym != Sym::none) {
      factors.push_back({dim.sym, dim.size});
    }
  }
  return factors;
}

}  // namespace ledger
