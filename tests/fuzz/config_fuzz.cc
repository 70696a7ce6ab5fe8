// A config.json: read as a model whose parameters can be counted, or a problem.
#include "core/config/model_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ledger;
  const Result<ModelConfig> config = read_model_config(text_of(data, size));
  if (!config.ok()) return 0;
  const std::uint64_t parameters = parameter_count(config.value());
  must(parameters > 0 && parameters < std::uint64_t{1} << 63, "a count of parameters");
  return 0;
}
