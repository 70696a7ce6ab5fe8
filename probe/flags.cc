#include "probe/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "core/base/nearest.h"
#include "core/config/memory_size.h"
#include "probe/exit.h"
#include "probe/manual.h"

namespace ledger {
namespace {

std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

std::string help_of(const RecipeKey& key) {
  std::string help = "recipe: ";
  for (const char* choice : key.choices)
    help += std::string(help.size() > 8 ? "|" : "") + choice;
  if (key.kind == RecipeKey::Kind::flag) help += "true|false";
  if (key.kind == RecipeKey::Kind::integer) help += std::to_string(key.low) + ".." + std::to_string(key.high);
  if (key.kind == RecipeKey::Kind::names) help += "all-linear, or names separated by commas";
  if (key.kind == RecipeKey::Kind::real) help += "a number";
  return help + " (default " + recipe_value(Recipe{}, key.name) + ")";
}

void add_recipe_flags(CLI::App& app, Flags& flags) {
  for (const RecipeKey& key : recipe_keys()) {
    const std::string name = key.name;
    auto store = [&flags, name](const std::string& text) { flags.keys.emplace_back(name, text); };
    CLI::Option* option = app.add_option_function<std::string>(flag_of(name), store, help_of(key))->type_name("");
    option->group("Recipe");
    if (key.kind == RecipeKey::Kind::flag) option->expected(0, 1)->default_str("true");
  }
}

// "90", "90s", "1.5m", "2h" in seconds.
double seconds_of(const std::string& flag, const std::string& text) {
  constexpr struct {
    std::string_view unit;
    double seconds;
  } kUnits[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  for (const auto& [unit, seconds] : kUnits) {
    if (end != text.c_str() && unit == end && number > 0 && number < 1e9) return number * seconds;
  }
  throw CLI::ValidationError(flag, "'" + text + "' is not a time such as 90s or 5m");
}

void add_time(CLI::App& app, const char* flag, double& seconds, const char* help) {
  app.add_option_function<std::string>(
         flag, [flag, &seconds](const std::string& text) { seconds = seconds_of(flag, text); }, help)
      ->type_name("TIME");
}

void add_own_flags(CLI::App& app, Flags& flags) {
  app.add_option("--model", flags.model,
                 "config.json of the model, - for standard input, or a checkpoint's name such as llama-3-8b")
      ->type_name("FILE|NAME");
  app.add_option("--recipe", flags.recipe, "recipe.json; flags below override it")->type_name("FILE");
  app.add_option("--json", flags.json,
                 "write the result as JSON, - for standard output; with %r in it every rank writes its own")
      ->type_name("FILE");
  app.add_flag("--dry-run", flags.dry_run, "predict only: no GPU and no driver needed");
  app.add_option_function<std::string>(
         "--device",
         [&flags](const std::string& text) {
           if (text != "host" && text != "cuda") {
             throw CLI::ValidationError("--device", "'" + text + "' is not one of host|cuda");
           }
           flags.device = text == "host" ? Device::host : Device::cuda;
         },
         "host: compute a small model on the CPU; cuda: measure on the GPU")
      ->type_name("host|cuda");
  app.add_option("--steps", flags.steps, "training steps to run")->check(CLI::Range(1u, 64u))->capture_default_str();
  app.add_option("--warmup", flags.warmup, "first steps left out of the speed")
      ->check(CLI::Range(0u, 63u))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--mem-limit", [&flags](const std::string& text) { flags.keys.emplace_back("memory_limit_bytes", text); },
         "behave like a card of this size, e.g. 24GiB")
      ->type_name("SIZE");
  app.add_option_function<std::string>(
         "--check",
         [&flags](const std::string& text) {
           char* end = nullptr;
           flags.check_percent = std::strtod(text.c_str(), &end);
           const bool unit = *end == '%' ? end[1] == '\0' : *end == '\0';
           if (end == text.c_str() || !unit || !(flags.check_percent >= 0)) {
             throw CLI::ValidationError("--check", "'" + text + "' is not a percentage such as 5%");
           }
         },
         "exit 4 when measured and predicted allocated peaks differ by more than this")
      ->type_name("PERCENT");
  app.add_option(
         "--explain-oom", flags.explain_oom,
         "read an out-of-memory error (a log's end), or - for standard input; with --model also against its prediction")
      ->type_name("FILE");
  app.add_option("--as-rank", flags.as_rank,
                 "stand in for one rank of the recipe's, as 3/8, or worst, that with the highest predicted peak: "
                 "memory is true, "
                 "collectives are copies of its own")
      ->type_name("RANK");
  app.add_option("--rank-timeout", flags.rank_timeout_s,
                 "end when another rank does not come, or does not answer, for so many seconds")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_flag("--allow-busy", flags.allow_busy, "measure on a GPU on which others compute, too (cuda)");
  add_time(app, "--budget", flags.budget_s,
           "begin no step that would not be done after this time, e.g. 60s; the first always is");
  add_time(app, "--timeout", flags.timeout_s, "stop after this time; what was measured is written");
  app.add_flag("--paranoid", flags.paranoid, "fill memory with NaN before it is written and after it is freed (cuda)");
  app.add_flag("--list-gpus", flags.list_gpus, "print the catalogue of GPUs");
  app.add_flag("--list-models", flags.list_models, "print the checkpoints that --model knows by name");
  app.add_flag("--quiet", flags.quiet, "no progress, no table");
  app.add_flag("--version", flags.version, "print the version");
  app.add_option("--generate", flags.generate, "print the man page or a shell's completion")
      ->type_name("man|markdown|bash|zsh|fish");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find('|', from), text.size());
    words.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return words;
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  for (const RecipeKey& key : recipe_keys()) {
    if (option.get_name() != flag_of(key.name)) continue;
    if (key.kind == RecipeKey::Kind::flag) return {"true", "false"};
    return {key.choices.begin(), key.choices.end()};
  }
  const std::string type = option.get_type_name();
  return type.find('|') == std::string::npos ? std::vector<std::string>() : split(type);
}

std::vector<FlagRow> rows_of(const CLI::App& app) {
  std::vector<FlagRow> rows;
  for (const CLI::Option* option : app.get_options()) {
    const bool recipe = option->get_group() == "Recipe";
    const bool takes_value = option->get_expected_max() > 0 && option->get_items_expected_max() > 0;
    std::string type = takes_value ? option->get_type_name() : "";
    rows.push_back({"--" + option->get_lnames().front(), type.substr(0, type.find(':')), option->get_description(),
                    recipe ? "Recipe" : "", choices_of(*option), takes_value});
  }
  return rows;
}

// "--seqq" is named with the flag most like it; a word behind it is its value, which says nothing.
int complain(const CLI::App& app, const std::vector<std::string>& unknown) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    known.push_back(option->get_name());
  std::vector<const char*> names;
  names.reserve(known.size());
  for (const std::string& name : known)
    names.push_back(name.c_str());
  const auto is_flag = [](const std::string& word) { return word.starts_with("-"); };
  const bool any_flag = std::any_of(unknown.begin(), unknown.end(), is_flag);
  for (const std::string& word : unknown) {
    if (any_flag && !is_flag(word)) continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::string closest = nearest(flag, names);
    std::fprintf(stderr, "probe: unknown argument '%s'.%s See probe --help.\n", word.c_str(),
                 closest.empty() ? "" : (" Did you mean " + closest + "?").c_str());
  }
  return kUsage;
}

}  // namespace

ParsedFlags parse_flags(int argc, const char* const* argv) {
  ParsedFlags parsed;
  CLI::App app{
      "Predicts the GPU memory of training a language model, and measures it by running the same trace.\n"
      "  probe --model config.json --dry-run                        predict\n"
      "  probe --model llama-3-8b --method lora --dry-run           predict, a published model by name\n"
      "  probe --model config.json --device host --json out.json    compute a small model on the CPU and measure\n"
      "Exit codes: " +
      std::string(kExitCodes)};
  add_own_flags(app, parsed.flags);
  add_recipe_flags(app, parsed.flags);
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    parsed.exit_code = app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "probe: %s. See probe --help.\n", error.what());
    parsed.exit_code = kUsage;
  }
  if (!parsed.exit_code && !parsed.flags.generate.empty()) {
    const std::string text = manual(parsed.flags.generate, rows_of(app));
    std::fputs(text.empty() ? "probe: --generate takes man|markdown|bash|zsh|fish.\n" : text.c_str(),
               text.empty() ? stderr : stdout);
    parsed.exit_code = text.empty() ? kUsage : 0;
  }
  if (!parsed.exit_code && !app.remaining().empty()) parsed.exit_code = complain(app, app.remaining());
  return parsed;
}

}  // namespace ledger
