#include "core/oom/recipe_hints.h"

#include <algorithm>
#include <string_view>

namespace ledger::oom {
namespace {

struct Word {
  std::string_view needle;
  const char* key;
  const char* value;
};
// More specific words first: the first that occurs gives a key its value.
constexpr Word kWords[] = {
    {"qlora", "method", "qlora"},
    {"matmul4bit", "method", "qlora"},
    {"loadin4bit:true", "method", "qlora"},
    {"loadin4bit=true", "method", "qlora"},
    {"lora", "method", "lora"},
    {"全参", "method", "full"},
    {"fullfinetun", "method", "full"},
    {"fullfine-tun", "method", "full"},
    {"zerostage3", "zero", "3"},
    {"zero3", "zero", "3"},
    {"zero-3", "zero", "3"},
    {"dsz3", "zero", "3"},
    {"zerostage2", "zero", "2"},
    {"zero2", "zero", "2"},
    {"zero-2", "zero", "2"},
    {"dsz2", "zero", "2"},
    {"zero-1", "zero", "1"},
    {"fullyshardeddataparallel", "fsdp", "1"},
    {"fullyshard(", "fsdp", "2"},
    {"fsdp2", "fsdp", "2"},
    {"multitensoradam", "optimizer", "adamw_foreach"},
    {"singletensoradam", "optimizer", "adamw_forloop"},
    {"fusedadam", "optimizer", "adamw_fused"},
    {"pagedadamw8bit", "optimizer", "paged_adamw_8bit"},
    {"adamw8bit", "optimizer", "adamw_8bit"},
    {"adamwbnb8bit", "optimizer", "adamw_8bit"},
    {"gradientcheckpointingfunc", "checkpointing", "full"},
    {"gradientcheckpointing=true", "checkpointing", "full"},
    {"gradientcheckpointing:true", "checkpointing", "full"},
    {"flashattnvarlen", "attention", "flash"},
    {"unpadinput", "attention", "flash"},
    {"eagerattentionforward", "attention", "eager"},
    {"scaleddotproductattention", "attention", "sdpa"},
    {"fusedlinearcrossentropy", "loss", "fused_linear"},
    {"linearcrossentropy", "loss", "fused_linear"},
};

// Numbers that stand behind a name and one of "=", ":" or a space.
struct Setting {
  std::string_view needle;
  const char* key;
};
constexpr Setting kSettings[] = {
    {"perdevicetrainbatchsize", "batch"},
    {"microbatchsize", "batch"},
    {"localbatchsize", "batch"},
    {"instantaneousbatchsizeperdevice", "batch"},
    {"gradientaccumulationsteps", "grad_accum"},
    {"cutofflen", "seq"},
    {"maxseqlength", "seq"},
    {"modelmaxlength", "seq"},
    {"sequencelen", "seq"},
    {"seqlen", "seq"},
    {"lorarank", "rank"},
    {"lorar", "rank"},
};

bool has(const std::vector<RecipeHint>& hints, std::string_view key) {
  return std::any_of(hints.begin(), hints.end(), [&](const RecipeHint& hint) { return key == hint.key; });
}

std::string setting_at(std::string_view text, std::size_t at) {
  while (at < text.size() &&
         (text[at] == '=' || text[at] == ':' || text[at] == '"' || text[at] == '\'' || text[at] == ','))
    ++at;
  std::size_t end = at;
  while (end < text.size() && end - at < 8 && text[end] >= '0' && text[end] <= '9')
    ++end;
  const bool whole = end == text.size() || text[end] != '.';
  return whole && end > at && text[at] != '0' ? std::string(text.substr(at, end - at)) : std::string();
}

}  // namespace

std::vector<RecipeHint> recipe_hints(const Squashed& squashed) {
  const std::string_view text = squashed.text();
  std::vector<RecipeHint> hints;
  for (const Word& word : kWords) {
    const std::size_t at = text.find(word.needle);
    if (at != std::string_view::npos && !has(hints, word.key))
      hints.push_back({word.key, word.value, squashed.quote(at)});
  }
  for (const Setting& setting : kSettings) {
    const std::size_t at = text.find(setting.needle);
    if (at == std::string_view::npos || has(hints, setting.key)) continue;
    const std::string value = setting_at(text, at + setting.needle.size());
    if (!value.empty()) hints.push_back({setting.key, value, squashed.quote(at)});
  }
  return hints;
}

}  // namespace ledger::oom
