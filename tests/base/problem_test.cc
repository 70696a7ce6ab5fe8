#include "core/base/problem.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace ledger {
namespace {

TEST(Problem, EveryCodeHasItsOwnSnakeCaseId) {
  std::set<std::string> ids;
  for (int i = 0; i < static_cast<int>(ProblemCode::count_); ++i) {
    const std::string id = problem_id(static_cast<ProblemCode>(i));
    EXPECT_EQ(id.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << id;
    EXPECT_TRUE(ids.insert(id).second) << id;
  }
}

TEST(Problem, IdsAreStable) {
  EXPECT_STREQ(problem_id(ProblemCode::json_syntax), "json_syntax");
  EXPECT_STREQ(problem_id(ProblemCode::not_one_of), "not_one_of");
  EXPECT_STREQ(problem_id(ProblemCode::inconsistent_config), "inconsistent_config");
  EXPECT_STREQ(problem_id(ProblemCode::schema_version), "schema_version");
}

}  // namespace
}  // namespace ledger
