// show_problem.h - Problems as GoogleTest prints and compares them.
#pragma once

#include <ostream>
#include <string>

#include "core/base/problem.h"

namespace ledger {

inline std::string shown(const Problem& problem) {
  return std::string(problem_id(problem.code)) + " where=" + problem.where + " read=" + problem.read +
         " expected=" + problem.expected + " nearest=" + problem.nearest;
}

// "ok", or the problem: one string to compare with, whatever T is.
template <class T>
std::string outcome(const Result<T>& result) {
  return result.ok() ? "ok" : shown(result.problem());
}

// Only the code, "ok" when there is none.
template <class T>
std::string code_of(const Result<T>& result) {
  return result.ok() ? "ok" : problem_id(result.problem().code);
}

}  // namespace ledger
