// lesson.cc - the course's figures for JavaScript: strings in, strings out.
#include <emscripten/bind.h>

#include <string>

#include "core/api.h"

namespace {

std::string lesson(const std::string& request) {
  return ledger::lesson(request);
}

}  // namespace

EMSCRIPTEN_BINDINGS(lesson) {
  emscripten::function("lesson", &lesson);
}
