#include "probe/checkpoints.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <vector>

#include "core/base/nearest.h"

namespace ledger {
namespace {

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

Json parsed(const CheckpointFile& file) {
  return parse_json(file.json).value();
}

std::string text_at(const Json& object, const char* key) {
  const Json* value = object.find(key);
  const auto text = value != nullptr ? value->as_string() : std::nullopt;
  return text ? std::string(*text) : std::string();
}

}  // namespace

std::optional<Json> checkpoint_config(std::string_view name) {
  for (const CheckpointFile& file : checkpoint_files()) {
    const Json row = parsed(file);
    const std::string hub = text_at(row, "hub");  // empty for a stack of plain layers
    if (same_letters(name, file.id) || (!hub.empty() && same_letters(name, hub))) return *row.find("config");
  }
  return std::nullopt;
}

std::string nearest_checkpoint(std::string_view name) {
  std::vector<const char*> ids;
  for (const CheckpointFile& file : checkpoint_files())
    ids.push_back(file.id);
  return nearest(name.substr(name.rfind('/') + 1), ids);  // npos + 1 is 0
}

std::string checkpoint_table() {
  std::string out;
  char line[256];
  const auto add = [&](const char* id, const char* params, const char* family, const char* hub) {
    std::snprintf(line, sizeof line, "%-22s %12s  %-20s %s\n", id, params, family, hub);
    out += line;
  };
  add("id", "parameters", "family", "on the Hugging Face hub");
  for (const CheckpointFile& file : checkpoint_files()) {
    const Json row = parsed(file);
    const double billions = static_cast<double>(row.find("params")->as_unsigned().value_or(0)) / 1e9;
    char params[32];
    std::snprintf(params, sizeof params, "%.3f B", billions);
    const std::string family = text_at(*row.find("config"), "model_type");
    add(file.id, params, family.empty() ? "plain stack" : family.c_str(), text_at(row, "hub").c_str());
  }
  return out;
}

}  // namespace ledger
