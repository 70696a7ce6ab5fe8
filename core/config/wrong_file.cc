#include "core/config/wrong_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/json.h"

namespace ledger {
namespace {

struct Magic {
  std::string_view start;
  std::string_view id;
};

using namespace std::string_view_literals;

// File signatures, at offset 0.
constexpr std::array kMagics = {
    Magic{"GGUF"sv, "gguf"},                                                 // ggml docs/gguf.md
    Magic{"ggjt"sv, "gguf"},                                                 // its forerunners, little-endian "tjgg"
    Magic{"tjgg"sv, "gguf"},                                                 //
    Magic{"PK\x03\x04"sv, "zip"},                                            // torch.save since 1.6, also .npz
    Magic{"\x80\x02"sv, "pickle"},                                           // torch.save before, protocols 2 to 5
    Magic{"\x80\x03"sv, "pickle"},                                           //
    Magic{"\x80\x04"sv, "pickle"},                                           //
    Magic{"\x80\x05"sv, "pickle"},                                           //
    Magic{"\x1F\x8B"sv, "gzip"},                                             // RFC 1952
    Magic{"\x89HDF\r\n\x1A\n"sv, "hdf5"},                                    // Keras weights
    Magic{"\xFF\xFE"sv, "utf16_text"},                                       // what a Windows shell's '>' writes
    Magic{"\xFE\xFF"sv, "utf16_text"},                                       //
    Magic{"version https://git-lfs.github.com/spec/"sv, "git_lfs_pointer"},  // a clone without git-lfs
    Magic{"---\n"sv, "yaml"},                                                //
    Magic{"---\r\n"sv, "yaml"},                                              //
    Magic{"import "sv, "python"},                                            //
    Magic{"from "sv, "python"},                                              //
    Magic{"#!"sv, "script"},                                                 //
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view without_space(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  return start == std::string_view::npos ? std::string_view() : text.substr(start);
}

// 8 bytes of header length, little-endian, then a JSON object (safetensors README, "Format").
bool is_safetensors(std::string_view text) {
  if (text.size() < 10 || text[8] != '{' || text[9] != '"') return false;
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i)
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(text[i])) << (8 * i);
  return length >= 2 && length < (std::uint64_t{1} << 32);
}

std::string_view markup(std::string_view text) {
  if (!text.starts_with('<')) return "";
  std::string head(text.substr(0, 512));
  std::transform(head.begin(), head.end(), head.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return has(head, "<!doctype html") || has(head, "<html") ? "html" : "xml";
}

// "key: value" on the first line that is no comment, and no brace.
bool is_yaml(std::string_view text) {
  while (text.starts_with('#')) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text = without_space(text.substr(end));
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t colon = line.find(':');
  const auto is_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return colon != std::string_view::npos && colon > 0 &&
         std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(colon), is_name) &&
         (colon + 1 == line.size() || line[colon + 1] == ' ' || line[colon + 1] == '\r');
}

// Every key listed must be there; the first row that fits names the file, so rows with more keys stand above.
struct Telltale {
  std::string_view id;
  std::array<std::string_view, 2> keys;  // "" is no key
};

// Key names as the libraries in the comments write them.
constexpr std::array kTelltales = {
    Telltale{"tokenizer", {"added_tokens", "model"}},            // tokenizers, tokenizer.json
    Telltale{"tokenizer", {"pre_tokenizer", "post_processor"}},  //
    Telltale{"adapter_config", {"peft_type", ""}},               // peft, adapter_config.json
    Telltale{"safetensors_index", {"weight_map", ""}},           // model.safetensors.index.json
    Telltale{"deepspeed_config", {"zero_optimization", ""}},     // DeepSpeed, config JSON
    Telltale{"deepspeed_config", {"train_micro_batch_size_per_gpu", ""}},
    Telltale{"trainer_state", {"log_history", "global_step"}},            // transformers Trainer, trainer_state.json
    Telltale{"training_arguments", {"per_device_train_batch_size", ""}},  // transformers TrainingArguments
    Telltale{"training_arguments", {"output_dir", "learning_rate"}},
    Telltale{"train_results", {"train_runtime", ""}},               // all_results.json, train_results.json
    Telltale{"preprocessor_config", {"image_processor_type", ""}},  // preprocessor_config.json
    Telltale{"preprocessor_config", {"feature_extractor_type", ""}},
    Telltale{"preprocessor_config", {"processor_class", "image_mean"}},
    Telltale{"processor_config", {"processor_class", ""}},  // processor_config.json
    Telltale{"tokenizer_config", {"tokenizer_class", ""}},  // tokenizer_config.json
    Telltale{"tokenizer_config", {"added_tokens_decoder", ""}},
    Telltale{"tokenizer_config", {"model_max_length", ""}},
    Telltale{"generation_config", {"_from_model_config", ""}},  // generation_config.json
    Telltale{"generation_config", {"max_new_tokens", ""}},
    Telltale{"generation_config", {"do_sample", ""}},
    Telltale{"generation_config", {"eos_token_id", "transformers_version"}},
    Telltale{"special_tokens_map", {"eos_token", ""}},  // special_tokens_map.json
    Telltale{"special_tokens_map", {"bos_token", ""}},
    Telltale{"special_tokens_map", {"unk_token", ""}},
    Telltale{"diffusers_config", {"_diffusers_version", ""}},  // diffusers model_index.json, config.json
    Telltale{"mistral_params", {"dim", "n_layers"}},           // params.json of Meta and Mistral downloads
    Telltale{"chat_template", {"chat_template", ""}},          // chat_template.json
    Telltale{"measured", {"schema_version", "environment"}},   // ours: docs/file-formats.md
    Telltale{"report", {"schema_version", "peaks"}},
    Telltale{"recipe", {"method", "precision"}},
    Telltale{"recipe", {"batch", "seq"}},
};

// vocab.json: nothing but token -> number.
bool is_vocabulary(const Json& root) {
  constexpr std::size_t kEnough = 100;
  return root.members().size() >= kEnough &&
         std::all_of(root.members().begin(), root.members().end(),
                     [](const Json::Member& m) { return m.second.type() == Json::Type::integer; });
}

}  // namespace

std::string_view wrong_file_by_bytes(std::string_view text) {
  for (const Magic& magic : kMagics) {
    if (text.starts_with(magic.start)) return magic.id;
  }
  if (is_safetensors(text)) return "safetensors";
  const std::string_view body = without_space(text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text);
  if (body.empty()) return "empty";
  if (body.starts_with('<')) return markup(body);
  if (is_yaml(body)) return "yaml";
  // tokenizer.json reaches 30 MB; its keys come first. tokenizers, Tokenizer::save.
  const std::string_view head = body.substr(0, 8192);
  if (text.size() > JsonLimits{}.bytes && has(head, "\"added_tokens\"")) return "tokenizer";
  return "";
}

std::string_view wrong_file_by_keys(const Json& root) {
  if (root.is_array()) return "json_list";
  for (const Telltale& tell : kTelltales) {
    const auto fits = [&](std::string_view key) { return key.empty() || root.find(key) != nullptr; };
    if (std::all_of(tell.keys.begin(), tell.keys.end(), fits)) return tell.id;
  }
  return is_vocabulary(root) ? "vocabulary" : "";
}

}  // namespace ledger
