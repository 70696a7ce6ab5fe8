// predict_cli.cc - the core's door on stdin and stdout: one request a line, one answer a line. A line is the function's
// name, a space and its request: `predict {"config": ...}`, `advise {...}`, `compare {...}`, `explain {...}`,
// `lesson {...}`, `catalogue`, `version`.
#include <iostream>
#include <string>
#include <string_view>

#include "core/api.h"

namespace {

bool answer(std::string_view function, std::string_view request, std::string& out) {
  if (function == "predict") {
    out = ledger::predict(request);
  } else if (function == "advise") {
    out = ledger::advise(request);
  } else if (function == "compare") {
    out = ledger::compare(request);
  } else if (function == "explain") {
    out = ledger::explain_oom(request);
  } else if (function == "lesson") {
    out = ledger::lesson(request);
  } else if (function == "catalogue") {
    out = ledger::catalogue();
  } else if (function == "version") {
    out = ledger::version();
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::string_view text = line;
    const std::size_t space = text.find(' ');
    const std::string_view request = space == std::string_view::npos ? std::string_view() : text.substr(space + 1);
    std::string out;
    if (!answer(text.substr(0, space), request, out)) {
      std::cerr << "unknown function: " << text.substr(0, space) << '\n';
      return 2;
    }
    std::cout << out << '\n';
  }
  return 0;
}
