// A measured.json: laid beside the prediction, or a problem.
#include "core/api.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ledger;
  JsonWriter request;
  request.begin_object().member("measured", text_of(data, size)).end_object();
  must_be_an_answer(compare(request.take()), "comparison");
  return 0;
}
