#include "core/models/feed_forward.h"

#include <cmath>
#include <optional>
#include <utility>

#include "core/models/compiled.h"
#include "core/trace/liger_ops.h"

namespace ledger {
namespace {

// transformers activations.py, NewGELUActivation: written out, so every factor is a tensor.
Tensor gelu_new(const Tensor& x) {
  const double scale = std::sqrt(2.0 / 3.14159265358979323846);
  const Tensor half = x * 0.5;
  Tensor inner;
  {
    Tensor cubed = pow(x, 3) * 0.044715;
    cubed = x + cubed;
    inner = cubed * scale;
  }
  inner = tanh(inner);
  inner = inner + 1.0;
  return half * inner;
}

// silu(gate) and the product in one kernel, whose arguments have no names: they go when nobody saved them.
Tensor gated_by(Tensor (*kernel)(const Tensor& gate, const Tensor& up), const FeedForward& m, const Tensor& x) {
  Tensor product;
  {
    const Tensor gate = m.gate.forward(x);
    const Tensor up = m.up.forward(x);
    product = kernel(gate, up);
  }
  return m.down.forward(product);
}

// transformers models/llama/modeling_llama.py, LlamaMLP: down(act(gate(x)) * up(x)); Liger-Kernel
// transformers/{swiglu,geglu}.py, LigerSwiGLUMLP and LigerGEGLUMLP.
Tensor gated(const FeedForward& m, const Tensor& x) {
  if (m.liger) return gated_by(m.act == Act::silu ? liger::silu_mul : liger::gelu_mul, m, x);
  if (m.compiled) return gated_by(compiled::swiglu, m, x);
  Tensor product = activate(m.act, m.gate.forward(x));
  product = product * m.up.forward(x);
  return m.down.forward(product);
}

// transformers models/phi3/modeling_phi3.py, Phi3MLP: both halves are views of one product; LigerPhi3SwiGLUMLP.
Tensor gated_fused(const FeedForward& m, const Tensor& x) {
  Tensor up_states = m.up.forward(x);
  const Dim half{up_states.dim(-1).size / 2, Sym::ffn};
  Parts parts = split(up_states, -1, half, 2);
  const Tensor gate = std::move(parts[0]);
  up_states = std::move(parts[1]);
  if (m.liger) return m.down.forward(liger::silu_mul(gate, up_states));
  up_states = up_states * activate(m.act, gate);
  return m.down.forward(up_states);
}

Tensor plain(const FeedForward& m, const Tensor& x) {
  Tensor hidden = m.up.forward(x);
  hidden = activate(m.act, hidden);
  return m.down.forward(hidden);
}

// transformers activations.py, QuickGELUActivation.
Tensor quick_gelu(const Tensor& x) {
  const Tensor gate = sigmoid(x * 1.702);
  return x * gate;
}

}  // namespace

Tensor activate(Act act, const Tensor& x) {
  switch (act) {
    case Act::gelu:
      return gelu(x, false);
    case Act::gelu_tanh:
      return gelu(x, true);
    case Act::gelu_new:
      return gelu_new(x);
    case Act::relu:
      return relu(x);
    case Act::quick_gelu:
      return quick_gelu(x);
    default:
      return silu(x);
  }
}

Product product_of(const ModelConfig& config) {
  if (config.style.projections == Projections::conv) return Product::conv1d;
  return config.style.projections == Projections::falcon ? Product::matmul : Product::linear;
}

FeedForward FeedForward::make(ModuleBuilder& builder, const std::string& path, const ModelConfig& config,
                              const ModuleNames& names, Dim hidden, Dim width) {
  const bool apart = names.mlp[0] != '\0';
  std::optional<Tape::Scope> scope;
  if (apart) scope.emplace(builder.tape(), names.mlp);
  const std::string at = apart ? path + names.mlp + "." : path;
  FeedForward mlp;
  mlp.name = names.mlp;
  mlp.feed = config.style.feed;
  mlp.act = config.act;
  mlp.dropout = config.residual_dropout;
  mlp.liger = builder.liger().on;
  const Product product = product_of(config);
  if (mlp.feed == Feed::gated) mlp.gate = Linear::make(builder, at, names.gate, hidden, width, config.mlp_bias);
  if (mlp.feed == Feed::gated_fused) {
    mlp.up = Linear::make(builder, at, names.gate_up, hidden, {times(2, width.size), Sym::none}, config.mlp_bias);
  } else {
    mlp.up = Linear::make(builder, at, names.up, hidden, width, config.mlp_bias, product);
  }
  mlp.down = Linear::make(builder, at, names.down, width, hidden, config.mlp_bias, product);
  return mlp;
}

Tensor FeedForward::forward(const Tensor& x) const {
  constexpr Tensor (*kForward[])(const FeedForward&, const Tensor&) = {gated, gated_fused, plain};
  std::optional<Tape::Scope> scope;
  if (name[0] != '\0') scope.emplace(x.tape(), name);
  enter_module(this, x);
  const Tensor output = ledger::dropout(kForward[static_cast<std::size_t>(feed)](*this, x), dropout);
  leave_module(this, output);
  return output;
}

}  // namespace ledger
