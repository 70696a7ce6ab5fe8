// A whole question, {"config", "recipe"}: a report whose ledger sums to its peak, or a problem.
#include "core/api.h"
#include "core/base/bytes.h"
#include "tests/fuzz/fuzz.h"

namespace ledger {
namespace {

Bytes bytes_of(const Json& object, std::string_view name) {
  const Json* found = object.find(name);
  must(found != nullptr && found->as_unsigned().has_value(), name);
  return *found->as_unsigned();
}

void must_sum(const Json& at_peak) {
  Bytes lines = 0;
  for (const Json& line : at_peak.find("tensors")->items())
    lines += bytes_of(line, "bytes");
  const Bytes held = bytes_of(at_peak, "tensor_bytes") + bytes_of(at_peak, "workspace_bytes");
  must(lines == held, "the ledger's lines sum to tensors and workspace");
  const Bytes allocated = bytes_of(at_peak, "allocated_bytes");
  must(held + bytes_of(at_peak, "allocator_rounding_bytes") == allocated,
       "with rounding they sum to what is allocated");
  must(allocated + bytes_of(at_peak, "cached_bytes") == bytes_of(at_peak, "reserved_bytes"),
       "allocated and cached sum to what is reserved");
}

}  // namespace
}  // namespace ledger

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ledger;
  const std::string answer = predict(text_of(data, size));
  must_be_an_answer(answer, "report");
  const Result<Json> document = parse_json(answer);
  const Json* report = document.value().find("report");
  const Json* at_peak = report ? report->find("at_peak") : nullptr;
  if (at_peak && !at_peak->is_null()) must_sum(*at_peak);
  return 0;
}
