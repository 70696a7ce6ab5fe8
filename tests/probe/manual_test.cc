// The man page and the completions come from the table of flags: all of it is in each, and shells and man can read
// them.
#include "probe/manual.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "core/config/recipe.h"
#include "tests/config/fixtures.h"

namespace ledger {
namespace {

struct Output {
  int code = -1;
  std::string text;
};

Output run(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof buffer, pipe))
    output.text.append(buffer, size);
  const int status = pclose(pipe);
  output.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

std::string generated(const std::string& kind) {
  const Output output = run(std::string(PROBE_BINARY) + " --generate " + kind);
  EXPECT_EQ(output.code, 0) << output.text;
  return output.text;
}

std::string flag_of(std::string key, const std::string& dash) {
  for (std::size_t at = key.find('_'); at != std::string::npos; at = key.find('_', at + dash.size()))
    key.replace(at, 1, dash);
  return key;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Manual, EveryRecipeKeyAndItsChoicesAreInEachOfThem) {
  const std::string man = generated("man"), bash = generated("bash"), zsh = generated("zsh"), fish = generated("fish");
  for (const RecipeKey& key : recipe_keys()) {
    EXPECT_TRUE(has(man, "\\-\\-" + flag_of(key.name, "\\-") + " ")) << key.name;
    EXPECT_TRUE(has(bash, " --" + flag_of(key.name, "-"))) << key.name;
    EXPECT_TRUE(has(zsh, "'--" + flag_of(key.name, "-") + "[")) << key.name;
    EXPECT_TRUE(has(fish, " -l " + flag_of(key.name, "-") + " ")) << key.name;
    for (const char* choice : key.choices)
      EXPECT_TRUE(has(bash, choice) && has(zsh, choice) && has(fish, choice)) << key.name << " " << choice;
  }
}

// Flags that --help names are in the man page, and those that it does not are not.
TEST(Manual, SaysWhatHelpSays) {
  const std::string help = run(std::string(PROBE_BINARY) + " --help").text, man = generated("man");
  std::size_t flags = 0;
  for (std::size_t at = help.find("\n  -"); at != std::string::npos; at = help.find("\n  -", at + 1)) {
    const std::size_t name = help.find("--", at);
    const std::string flag = help.substr(name + 2, help.find_first_of(" ,=[{\n", name) - name - 2);
    std::string escaped;
    for (const char c : flag)
      escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_TRUE(has(man, "\\-\\-" + escaped)) << flag;
    ++flags;
  }
  EXPECT_GT(flags, 40u);
}

// build/bin/probe --generate markdown >docs/cli.md
TEST(Manual, TheDocumentIsTheGeneratedOne) {
  EXPECT_EQ(fixture("../../docs/cli.md"), generated("markdown"));
}

TEST(Manual, BashCompletesFlagsAndValues) {
  const std::string complete = "bash -c 'source <(" + std::string(PROBE_BINARY) + " --generate bash); COMP_WORDS=(";
  const std::string end = "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _probe; echo \"${COMPREPLY[*]}\"'";
  EXPECT_EQ(run(complete + "probe --metho" + end).text, "--method\n");
  EXPECT_EQ(run(complete + "probe --method ql" + end).text, "qlora\n");
  EXPECT_EQ(run(complete + "probe --precision amp" + end).text, "amp-bf16 amp-fp16\n");
}

TEST(Manual, AnotherKindIsAUsageError) {
  const Output output = run(std::string(PROBE_BINARY) + " --generate tcsh");
  EXPECT_EQ(output.code, 2);
  EXPECT_TRUE(has(output.text, "man|markdown|bash|zsh|fish"));
}

TEST(Manual, RoffAndQuotesAreEscaped) {
  const FlagRow row{"--odd", "FILE", ".it's [a\\b]: c-d", "", {}, true};
  const std::string man = manual("man", std::span(&row, 1));
  EXPECT_TRUE(has(man, "\n\\&.it's [a\\eb]: c\\-d\n")) << man;
  EXPECT_TRUE(has(manual("zsh", std::span(&row, 1)), ".it'\\''s \\[a\\b\\]\\: c-d"));
  EXPECT_TRUE(has(manual("fish", std::span(&row, 1)), ".it\\'s [a\\\\b]: c-d"));
}

}  // namespace
}  // namespace ledger
