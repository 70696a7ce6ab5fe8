// golden.h - tests/fixtures/golden/*.json: numbers of transformers, peft and bitsandbytes, and where they come from.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"

namespace ledger {

inline Json golden_file(const std::string& name) {
  std::ifstream in(FIXTURES "/golden/" + name);
  std::ostringstream text;
  text << in.rdbuf();
  return parse_json(text.str()).value();
}

inline std::vector<double> numbers(const Json& list) {
  std::vector<double> values;
  for (const Json& item : list.items())
    values.push_back(item.as_real().value());
  return values;
}

}  // namespace ledger
