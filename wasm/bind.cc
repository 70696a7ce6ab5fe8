// bind.cc - the core's door (core/api.h) for JavaScript: strings in, strings out.
#include <emscripten/bind.h>

#include <string>

#include "core/api.h"

namespace {

std::string predict(const std::string& request) {
  return ledger::predict(request);
}
std::string advise(const std::string& request) {
  return ledger::advise(request);
}
std::string compare(const std::string& request) {
  return ledger::compare(request);
}
std::string version() {
  return ledger::version();
}

}  // namespace

EMSCRIPTEN_BINDINGS(ledger) {
  emscripten::function("predict", &predict);
  emscripten::function("catalogue", &ledger::catalogue);
  emscripten::function("advise", &advise);
  emscripten::function("compare", &compare);
  emscripten::function("version", &version);
}
