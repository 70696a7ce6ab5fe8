#include "probe/inputs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/base/json.h"
#include "probe/checkpoints.h"
#include "probe/files.h"
#include "probe/texts.h"

namespace ledger {
namespace {

constexpr std::uint64_t kLargestInput = 8u << 20;

// "--mem-limit" for memory_limit_bytes, as it was most likely typed.
std::string flag_named(const std::string& key) {
  if (key == "memory_limit_bytes") return "--mem-limit";
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

Inputs failed(int code, const std::string& sentence) {
  Inputs inputs;
  inputs.code = fail(code, sentence);
  return inputs;
}

// Said of a path that does not exist: it may have been meant as a name.
std::string no_such_checkpoint(const std::string& name) {
  if (name.find(".json") != std::string::npos) return "";
  const std::string closest = nearest_checkpoint(name);
  return " No checkpoint has this name either" +
         (closest.empty() ? ": probe --list-models prints those that are known." : "; did you mean " + closest + "?");
}

// A file that exists, or a checkpoint's name; returns what is wrong with it, or "".
std::string read_model(const std::string& model, ModelConfig& config) {
  const bool file = model == "-" || access(model.c_str(), F_OK) == 0;
  const std::optional<Json> known = file ? std::nullopt : checkpoint_config(model);
  FileText text;
  if (!known) {
    text = read_file(model, kLargestInput);
    if (!text.error.empty()) return text.error + (file ? "" : no_such_checkpoint(model));
  }
  const Result<ModelConfig> read = known ? model_config_from(*known) : read_model_config(text.text);
  if (!read.ok()) return say(read.problem(), model);
  config = read.value();
  return "";
}

}  // namespace

int fail(int code, const std::string& sentence) {
  std::fprintf(stderr, "probe: %s\n", sentence.c_str());
  return code;
}

Inputs read_inputs(const Flags& flags) {
  if (flags.model.empty())
    return failed(kUsage,
                  "--model is missing: name a config.json, or a checkpoint such as llama-3-8b. See probe --help.");
  Inputs inputs;
  if (const std::string wrong = read_model(flags.model, inputs.config); !wrong.empty()) return failed(kUsage, wrong);
  if (!flags.recipe.empty()) {
    const FileText text = read_file(flags.recipe, kLargestInput);
    if (!text.error.empty()) return failed(kUsage, text.error);
    const Result<Recipe> recipe = read_recipe(text.text);
    if (!recipe.ok()) return failed(kUsage, say(recipe.problem(), flags.recipe));
    inputs.recipe = recipe.value();
  }
  for (const auto& [key, text] : flags.keys) {
    const Result<Recipe> recipe = with_recipe_text(inputs.recipe, key, text.empty() ? "true" : text);
    if (!recipe.ok()) {
      Problem problem = recipe.problem();
      problem.where = flag_named(key);
      return failed(kUsage, say(problem, "command line"));
    }
    inputs.recipe = recipe.value();
  }
  return inputs;
}

}  // namespace ledger
