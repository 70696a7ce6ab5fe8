// fixtures.h - reading files below tests/fixtures/.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace ledger {

inline std::string fixture(const std::string& name) {
  std::ifstream file(std::string(FIXTURES) + "/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace ledger
