// An error message or the end of a log: explained, and every quote stands in the text.
#include "core/oom/explain.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ledger;
  const std::string_view text = text_of(data, size);
  const oom::Explanation explained = oom::explain(text);
  must(explained.diagnosis.also_possible.size() <= 2, "at most two other causes");
  must(explained.diagnosis.confidence > 0 && explained.diagnosis.confidence <= 1, "a confidence from 0 to 1");
  for (const oom::Evidence& evidence : explained.diagnosis.evidence)
    must(text.find(evidence.quote) != std::string_view::npos, "evidence is quoted from the text", evidence.quote);
  must(parse_json(oom::write_explanation(explained)).ok(), "the explanation is JSON");
  return 0;
}
