#include "core/base/real_text.h"

#include <cstdio>
#include <cstdlib>

namespace ledger {

void write_digits(char (&text)[kRealDigits], int precision, double number) {
  std::snprintf(text, sizeof text, "%.*e", precision, number);
}

double read_digits(const char* text) {
  return std::strtod(text, nullptr);
}

}  // namespace ledger
