// A recipe: reads back as itself, or a problem.
#include "core/config/recipe.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ledger;
  const Result<Recipe> recipe = read_recipe(text_of(data, size));
  if (!recipe.ok()) return 0;
  JsonWriter out;
  write_recipe(out, recipe.value());
  const std::string again = out.take();
  const Result<Recipe> back = read_recipe(again);
  must(back.ok() && back.value() == recipe.value(), "a recipe reads back as it was written", again);
  return 0;
}
