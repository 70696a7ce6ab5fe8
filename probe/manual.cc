#include "probe/manual.h"

#include <algorithm>

#include "core/api.h"

namespace ledger {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// roff takes "-" for a hyphen, "\" for an escape, and a leading "." for a request.
std::string roff(const std::string& text) {
  const std::string escaped = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  return escaped.starts_with('.') || escaped.starts_with('\'') ? "\\&" + escaped : escaped;
}

std::string value_of(const FlagRow& flag) {
  if (!flag.takes_value) return "";
  return flag.type.empty() ? "VALUE" : flag.type;
}

std::string man_flag(const FlagRow& flag) {
  std::string text = ".TP\n.B " + roff(flag.name);
  if (!value_of(flag).empty()) text = ".TP\n.BI " + roff(flag.name) + " \" " + roff(value_of(flag)) + "\"";
  return text + "\n" + roff(flag.help) + "\n";
}

std::string man(std::span<const FlagRow> flags) {
  std::string text =
      ".TH PROBE 1 \"\" \"memory\\-ledger " + std::string(version()) +
      "\" \"User Commands\"\n"
      ".SH NAME\nprobe \\- predict the GPU memory of training a language model, and measure it\n"
      ".SH SYNOPSIS\n.B probe\n.BI \\-\\-model \" config.json\"\n.RB [ \\-\\-dry\\-run ]\n.RI [ flags ]\n"
      ".br\n.B probe\n.BI \\-\\-explain\\-oom \" log.txt\"\n.RB [ \\-\\-model\n.IR config.json ]\n"
      ".SH DESCRIPTION\nRuns two training steps symbolically over a model of PyTorch's allocator, and says "
      "what is alive at the peak. Without\n.BR \\-\\-dry\\-run ,\nruns the same trace for real and lays the "
      "measurement beside the prediction.\n.SH OPTIONS\n";
  for (const FlagRow& flag : flags) {
    if (flag.group.empty()) text += man_flag(flag);
  }
  text += ".SH RECIPE\nEvery key of a recipe file is a flag as well.\n";
  for (const FlagRow& flag : flags) {
    if (!flag.group.empty()) text += man_flag(flag);
  }
  return text +
         ".SH EXIT STATUS\n0 ok, 1 internal error, 2 usage, 3 out of memory (a result: the JSON is complete), 4 "
         "\\-\\-check failed, 69 no usable GPU.\n";
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    text.append(text.empty() ? "" : " ").append(word);
  return text;
}

bool is_file(const FlagRow& flag) {
  return flag.type == "FILE";
}

std::string bash(std::span<const FlagRow> flags) {
  std::string names, cases;
  for (const FlagRow& flag : flags) {
    names.append(names.empty() ? "" : " ").append(flag.name);
    if (is_file(flag)) cases += "    " + flag.name + ") COMPREPLY=($(compgen -f -- \"$word\")) && return ;;\n";
    if (flag.choices.empty()) continue;
    cases +=
        "    " + flag.name + ") COMPREPLY=($(compgen -W '" + joined(flag.choices) + "' -- \"$word\")) && return ;;\n";
  }
  return "# bash completion of probe; load it with: source <(probe --generate bash)\n"
         "_probe() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n  case $before "
         "in\n" +
         cases + "  esac\n  COMPREPLY=($(compgen -W '" + names +
         "' -- \"$word\"))\n}\ncomplete -o default -F _probe probe\n";
}

// Brackets and colons have a meaning in zsh's specifications, quotes in both shells' strings.
std::string zsh_text(const std::string& text) {
  return replaced(replaced(replaced(replaced(text, "'", "'\\''"), "[", "\\["), "]", "\\]"), ":", "\\:");
}

std::string zsh(std::span<const FlagRow> flags) {
  std::string text = "#compdef probe\n_arguments";
  for (const FlagRow& flag : flags) {
    text += " \\\n  '" + flag.name + "[" + zsh_text(flag.help) + "]";
    const std::string action = is_file(flag) ? "_files" : flag.choices.empty() ? "" : "(" + joined(flag.choices) + ")";
    if (flag.takes_value) text += ":value:" + action;
    text += "'";
  }
  return text + "\n";
}

std::string fish(std::span<const FlagRow> flags) {
  std::string text = "# fish completion of probe\n";
  for (const FlagRow& flag : flags) {
    text += "complete -c probe -l " + flag.name.substr(2);
    if (flag.takes_value) text += is_file(flag) ? " -r -F" : " -x";
    if (!flag.choices.empty()) text += " -a '" + joined(flag.choices) + "'";
    text += " -d '" + replaced(replaced(flag.help, "\\", "\\\\"), "'", "\\'") + "'\n";
  }
  return text;
}

}  // namespace

std::string manual(const std::string& kind, std::span<const FlagRow> flags) {
  using Writer = std::string (*)(std::span<const FlagRow>);
  constexpr Writer kWriters[] = {man, bash, zsh, fish};
  for (std::size_t i = 0; i < std::size(kManuals); ++i) {
    if (kind == kManuals[i]) return kWriters[i](flags);
  }
  return "";
}

}  // namespace ledger
