// A question of the course's figures: answered, or a problem.
#include "core/api.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ledger;
  must_be_an_answer(lesson(text_of(data, size)), "lesson");
  return 0;
}
