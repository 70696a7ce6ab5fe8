#include "core/lesson/lesson.h"

#include <string_view>
#include <utility>

#include "core/answer/count_report.h"
#include "core/api.h"

namespace ledger {
namespace {

using Lesson = Result<std::string> (*)(const Json&);

constexpr std::pair<std::string_view, Lesson> kLessons[] = {
    {"formats", formats_lesson}, {"number", number_lesson}, {"update", update_lesson}, {"scaling", scaling_lesson},
    {"tensor", tensor_lesson},   {"ledger", ledger_lesson}, {"cut", cut_lesson},
};

Result<std::string> taught(std::string_view text) {
  const Result<Json> request = parse_json(text);
  if (!request.ok()) return request.problem();
  const Json* about = request.value().find("about");
  std::string names;
  for (const auto& [name, lesson] : kLessons) {
    if (about != nullptr && about->as_string() == name) return lesson(request.value());
    names.append(names.empty() ? "" : "|").append(name);
  }
  return Problem{ProblemCode::not_one_of, "about", about == nullptr ? "" : about->brief(), names, ""};
}

}  // namespace

std::string lesson(std::string_view request) {
  const Result<std::string> answer = taught(request);
  JsonWriter out;
  if (answer.ok()) return "{\"lesson\":" + answer.value() + "}";
  out.begin_object().key("problem");
  write_problem(out, answer.problem());
  out.end_object();
  return out.take();
}

}  // namespace ledger
