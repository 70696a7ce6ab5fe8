// plain.cc - a stack of nn.Linear layers, such as the course's 8 x Linear(2048, 2048); the loss is the mean square of
// its output.

#include "core/models/model.h"
#include "core/models/modules.h"

namespace ledger {
namespace {

class PlainStack : public Model {
 public:
  PlainStack(Tape& tape, const ModelConfig& config, const ModelOptions& options)
      : batch_{options.batch, Sym::b}, in_{config.layers.front().in, Sym::in}, dtype_(options.weights) {
    ModuleBuilder builder(tape, options.weights);
    const Tape::Scope scope(tape, "layers.*");
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
      const Tape::Layer layer(tape, static_cast<std::int32_t>(i));
      const PlainLinear& row = config.layers[i];
      const std::string path = "layers." + std::to_string(i) + ".";
      layers_.push_back(Linear::make(builder, path, "linear", {row.in, Sym::in}, {row.out, Sym::out}, row.bias));
    }
    trainable_ = builder.take_trainable();
  }

  Tensor make_inputs(Tape& tape) override {
    const Tape::Scope scope(tape, "features");
    const Tape::In in(tape, Category::inputs);
    Tensor features = tape.empty(OpKind::load_values, {batch_, in_}, dtype_);
    tape.run(OpKind::load_values, {}, {&features});
    return features;
  }

  Tensor forward(const Tensor& features) override {
    Tape& tape = features.tape();
    Tensor x = features;
    {
      const Tape::Scope scope(tape, "layers.*");
      for (std::size_t i = 0; i < layers_.size(); ++i) {
        const Tape::Layer layer(tape, static_cast<std::int32_t>(i));
        x = layers_[i].forward(x);
      }
    }
    const Tape::Scope scope(tape, "loss");
    return mean_all(pow(x, 2));
  }

 private:
  Dim batch_, in_;
  DType dtype_;
  std::vector<Linear> layers_;
};

}  // namespace

std::unique_ptr<Model> build_plain(Tape& tape, const ModelConfig& config, const ModelOptions& options) {
  return std::make_unique<PlainStack>(tape, config, options);
}

}  // namespace ledger
