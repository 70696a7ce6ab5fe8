#include "core/oom/messages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/oom/formats.h"

namespace ledger::oom {
namespace {

constexpr std::pair<std::string_view, const char*> kDevices[] = {
    {"hipoutofmemory", "hip"}, {"xpuoutofmemory", "xpu"}, {"npuoutofmemory", "npu"}, {"cudaoutofmemory", "cuda"}};

constexpr std::size_t kLongestMessage = 6000;  // some hundred processes
constexpr std::size_t kHead = 160;             // the class name and what stands before the anchor

struct Anchor {
  const Format* format;
  std::size_t at;
};

// Anchors in the order of the text, one a place.
std::vector<Anchor> anchors_in(std::string_view text, std::size_t most) {
  std::vector<Anchor> found;
  for (const Format& format : formats()) {
    std::size_t hits = 0;
    for (std::size_t at = text.find(format.anchor); at != std::string_view::npos && hits < most;
         at = text.find(format.anchor, at + format.anchor.size()), ++hits)
      found.push_back({&format, at});
  }
  std::stable_sort(found.begin(), found.end(), [](const Anchor& a, const Anchor& b) { return a.at < b.at; });
  return found;
}

std::optional<Number> beside(std::string_view text, const FieldWords& words) {
  const bool after = words.side != Side::before;
  for (std::size_t at = text.find(words.words); at != std::string_view::npos; at = text.find(words.words, at + 1)) {
    const std::size_t end = at + words.words.size();
    const auto number =
        after ? number_at(text, end, words.side == Side::bare_after ? 'b' : '\0') : number_before(text, at);
    if (number) return number;
  }
  return std::nullopt;
}

void read_fields(Message& message, const Format& format, std::string_view text) {
  for (const FieldWords& words : format.fields) {
    if (message[words.field]) continue;
    if (const auto number = beside(text, words)) {
      message[words.field] = number->bytes;
      message.stated = true;
    }
  }
}

std::optional<std::uint64_t> digits_at(std::string_view text, std::size_t at) {
  std::uint64_t value = 0;
  std::size_t end = at;
  for (; end < text.size() && end < at + 10 && text[end] >= '0' && text[end] <= '9'; ++end)
    value = value * 10 + static_cast<std::uint64_t>(text[end] - '0');
  return end == at ? std::nullopt : std::optional(value);
}

// "Process 1234 has 3.40 GiB memory in use."
void read_processes(Message& message, std::string_view text) {
  constexpr std::string_view kWord = "process";
  for (std::size_t at = text.find(kWord); at != std::string_view::npos; at = text.find(kWord, at + 1)) {
    const auto pid = digits_at(text, at + kWord.size());
    if (!pid) continue;
    const std::size_t has = text.substr(0, at + kWord.size() + 14).find("has", at);
    if (has == std::string_view::npos) continue;
    if (const auto number = number_at(text, has + 3)) message.processes.push_back({*pid, number->bytes});
  }
}

// TensorFlow states a shape and a type instead of bytes.
std::optional<Bytes> tensorflow_bytes(std::string_view text) {
  Bytes bytes = 1;
  std::size_t at = text.find('[');
  if (at == std::string_view::npos) return std::nullopt;
  for (++at; at < text.size() && text[at] != ']'; ++at) {
    const auto extent = digits_at(text, at);
    if (!extent) return std::nullopt;
    bytes = times(bytes, *extent);
    at = std::min(text.find_first_of(",]", at), text.size());
    if (at < text.size() && text[at] == ']') break;
  }
  constexpr std::pair<std::string_view, Bytes> kTypes[] = {{"float", 4}, {"double", 8}, {"half", 2}, {"bfloat16", 2},
                                                           {"int64", 8}, {"int32", 4},  {"bool", 1}};
  const std::size_t type = text.find("andtype");
  if (type == std::string_view::npos || is_overflow(bytes)) return std::nullopt;
  for (const auto& [name, size] : kTypes) {
    if (text.substr(type + 7).starts_with(name)) return times(bytes, size);
  }
  return std::nullopt;
}

// "(7.61/14.58 GiB) on startup is less than desired GPU memory utilization (0.9, 13.12 GiB)": one unit for two numbers.
void read_vllm_startup(Message& message, std::string_view text) {
  const std::size_t open = text.find('(');
  const std::size_t slash = text.find('/', open);
  if (slash == std::string_view::npos || slash - open > 12) return;
  const auto total = number_at(text, slash + 1);
  if (!total) return;
  const std::size_t unit = text.find_first_not_of("0123456789.", slash + 1);
  const std::string free =
      std::string(text.substr(open + 1, slash - open - 1)) + std::string(text.substr(unit, total->end - unit));
  message[Field::capacity] = total->bytes;
  if (const auto number = number_at(free, 0)) message[Field::free] = number->bytes;
  const std::size_t desired = text.find("utilization(", total->end);
  const std::size_t comma = desired == std::string_view::npos ? desired : text.find(',', desired);
  if (comma != std::string_view::npos) {
    if (const auto number = number_at(text, comma + 1)) message[Field::requested] = number->bytes;
  }
  message.stated = true;
}

void name_edition(Message& message, std::string_view around) {
  if (std::string_view(message.format) != "torch") return;
  for (const Edition& edition : editions()) {
    if (around.find(edition.mark) != std::string_view::npos) message.format = edition.id;
  }
  for (const auto& [words, device] : kDevices) {
    if (around.find(words) != std::string_view::npos) message.device = device;
  }
}

// What one form states follows from what another does: reserved = allocated + unallocated.
void complete(Message& message) {
  const auto& allocated = message[Field::allocated];
  if (!allocated) return;
  auto& reserved = message[Field::reserved];
  auto& unallocated = message[Field::unallocated];
  if (!reserved && unallocated) reserved = plus(*allocated, *unallocated);
  if (!unallocated && reserved && *reserved >= *allocated) unallocated = *reserved - *allocated;
}

// The own process stands among "Process N has ..." where the driver's view is of another PID namespace: it is the one
// whose use is nearest above what this process's PyTorch holds.
void find_own_process(Message& message) {
  if (message[Field::this_process] || message.processes.empty() || !message[Field::reserved]) return;
  constexpr Bytes kMostOverhead = 4 * kGiB;
  const Bytes held = *message[Field::reserved];
  auto own = message.processes.end();
  for (auto it = message.processes.begin(); it != message.processes.end(); ++it) {
    const bool holds = it->bytes && plus(*it->bytes, 16 * kMiB) >= held && *it->bytes <= plus(held, kMostOverhead);
    if (holds && (own == message.processes.end() || *it->bytes < *own->bytes)) own = it;
  }
  if (own == message.processes.end()) return;
  message[Field::this_process] = own->bytes;
  message.processes.erase(own);
}

Message read_one(std::string_view text, const Anchor& anchor, std::size_t begin, std::size_t end) {
  Message message;
  message.format = anchor.format->id;
  message.device = anchor.format->device;
  message.memory = anchor.format->memory;
  message.at = anchor.at;
  const std::string_view body = text.substr(begin, end - begin);
  read_fields(message, *anchor.format, body);
  if (std::string_view(message.format) == "torch") {
    read_processes(message, body);
    const std::size_t gpu = body.find("gpu");
    if (gpu != std::string_view::npos) message.gpu = digits_at(body, gpu + 3);
    const std::size_t head = anchor.at - std::min(anchor.at, kHead);
    name_edition(message, text.substr(head, end - head));
  }
  if (std::string_view(message.format) == "tensorflow") {
    message[Field::requested] = tensorflow_bytes(body);
    message.stated = message[Field::requested].has_value();
  }
  if (std::string_view(message.format) == "vllm_startup") read_vllm_startup(message, body);
  complete(message);
  find_own_process(message);
  return message;
}

// Words that belong to the message before them, when they follow within so many letters.
struct Continuation {
  std::string_view format;  // of the message before, or how it begins
  std::string_view anchor;
  std::size_t within;
};
constexpr Continuation kContinuations[] = {
    {"torch_mps", "triedtoallocate", 400},  // states the others before
    {"torch_cpu", "triedtoallocate", 80},   // "you tried to allocate"
    {"xla_allocate", "tryingtoallocate", 400},
    {"torch", "oftheallocatedmemory", kLongestMessage},
};

bool continues(const Message& last, const Format& format, std::size_t at) {
  const std::string_view before = last.format;
  const std::size_t distance = at - last.at;
  constexpr std::size_t kSameLine = 40;  // two anchors of one format
  if (before == format.id && distance < kSameLine) return true;
  return std::any_of(std::begin(kContinuations), std::end(kContinuations), [&](const Continuation& c) {
    return before.starts_with(c.format) && format.anchor == c.anchor && distance < c.within;
  });
}

}  // namespace

std::vector<Message> read_messages(const Squashed& squashed, std::size_t most) {
  const std::string_view text = squashed.text();
  const std::vector<Anchor> anchors = anchors_in(text, most * 4);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < anchors.size() && messages.size() < most; ++i) {
    const Format& format = *anchors[i].format;
    if (!messages.empty() && continues(messages.back(), format, anchors[i].at)) continue;
    std::size_t end = anchors[i].at + kLongestMessage;
    for (std::size_t next = i + 1; next < anchors.size(); ++next) {
      if (anchors[next].format->anchor == format.anchor) end = std::min(end, anchors[next].at);
    }
    Message message = read_one(text, anchors[i], anchors[i].at, std::min(end, text.size()));
    if (message.stated || !format.numbers_needed) messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace ledger::oom
