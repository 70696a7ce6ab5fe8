// oom.cc - the reader of out-of-memory errors for JavaScript: strings in, strings out.
#include <emscripten/bind.h>

#include <string>

#include "core/api.h"

namespace {

std::string explain(const std::string& request) {
  return ledger::explain_oom(request);
}

}  // namespace

EMSCRIPTEN_BINDINGS(oom) {
  emscripten::function("explain", &explain);
}
