#include "core/oom/messages.h"

#include <algorithm>
#include <iterator>

namespace ledger::oom {
namespace {

enum class Side : std::uint8_t { before, after, bare_after };  // of the words; bare: bytes without a unit

struct FieldWords {
  Field field;
  std::string_view words;
  Side side;
};

constexpr FieldWords kTorch[] = {
    {Field::requested, "triedtoallocate", Side::after},
    {Field::capacity, "totalcapacity;", Side::before},
    {Field::capacity, "totalcapacity", Side::before},
    {Field::capacity, "totalcapacityof", Side::after},
    {Field::capacity, "totalcapactyof", Side::after},
    {Field::allocated, "alreadyallocated", Side::before},
    {Field::allocated, "oftheallocatedmemory", Side::after},
    {Field::allocated, "isallocatedbypytorch", Side::before},
    {Field::free, "ofwhich", Side::after},
    {Field::free, "isfree", Side::before},
    {Field::free, "free;", Side::before},
    {Field::free, "free)", Side::before},
    {Field::reserved, "reservedintotal", Side::before},
    {Field::reserved, "reserved", Side::before},
    {Field::unallocated, "isreservedbypytorchbutunallocated", Side::before},
    {Field::unallocated, "isreserved", Side::before},
    {Field::unallocated, "reservedbutunallocated", Side::before},
    {Field::unallocated, "cached)", Side::before},
    {Field::unallocated, "cached", Side::before},
    {Field::this_process, "thisprocesshas", Side::after},
    {Field::private_pools, "allocatedinprivatepools", Side::before},
    {Field::allowed, "allowed;", Side::before},
};
constexpr FieldWords kMps[] = {
    {Field::requested, "triedtoallocate", Side::after},
    {Field::allocated, "mpsallocated:", Side::after},
    {Field::capacity, "maxallowed:", Side::after},
};
constexpr FieldWords kAsync[] = {
    {Field::requested, "requested:", Side::after},
    {Field::allocated, "currentlyallocated:", Side::after},
    {Field::capacity, "devicelimit:", Side::after},
    {Field::free, "free(accordingtocuda):", Side::after},
};
constexpr FieldWords kMapping[] = {
    {Field::requested, "whiletryingtomap", Side::after},
    {Field::free, "(free:", Side::bare_after},
    {Field::capacity, "total:", Side::bare_after},
};
constexpr FieldWords kHpu[] = {{Field::requested, "allocationfailedforsize::", Side::bare_after}};
constexpr FieldWords kJax[] = {
    {Field::requested, "tryingtoallocate", Side::after},
    {Field::requested, "attemptingtoreserve", Side::after},
    {Field::requested, "attemptingtoallocate", Side::after},
    {Field::free, "free,", Side::before},
};
constexpr FieldWords kXla[] = {
    {Field::allocated, "memoryspacehbm.used", Side::after},
    {Field::capacity, "hbm.exceeded", Side::before},
    {Field::requested, "hbmcapacityby", Side::after},
};
constexpr FieldWords kPaddle[] = {
    {Field::requested, "cannotallocate", Side::after},
    {Field::allocated, "memoryhasbeenallocated", Side::before},
    {Field::free, "availablememoryisonly", Side::after},
};
constexpr FieldWords kMlx[] = {{Field::requested, "unabletoallocate", Side::after},
                               {Field::requested, "attemptingtoallocate", Side::after},
                               {Field::capacity, "buffersizeof", Side::after}};
constexpr FieldWords kCpu[] = {{Field::requested, "youtriedtoallocate", Side::after}};
constexpr FieldWords kNumpy[] = {{Field::requested, "unabletoallocate", Side::after}};
constexpr FieldWords kSharedMemory[] = {
    {Field::requested, "required:", Side::bare_after},
    {Field::capacity, "hardwarelimit:", Side::bare_after},
};
constexpr FieldWords kProse[] = {{Field::requested, "tryingtoallocate", Side::after}};
constexpr FieldWords kNoNumbers[] = {{Field::count_, "", Side::after}};

struct Format {
  std::string_view anchor;
  const char* id;
  const char* device;
  Memory memory;
  const FieldWords* fields;
  std::size_t field_count;
  bool numbers_needed;  // the anchor's words also stand in prose: without a number it is no message
};

template <std::size_t N>
constexpr Format format(std::string_view anchor, const char* id, const char* device, const FieldWords (&fields)[N],
                        Memory memory = Memory::device, bool needed = false) {
  return {anchor, id, device, memory, fields, fields[0].field == Field::count_ ? 0 : N, needed};
}

// Earlier rows win where two anchors meet in one place.
constexpr Format kFormats[] = {
    format("outofresource:sharedmemory", "triton_shared_memory", "", kSharedMemory, Memory::other),
    format("largerthan4gb", "xpu_block_limit", "xpu", kNoNumbers, Memory::other),
    format("metal::malloc]attemptingtoallocate", "mlx_buffer_limit", "mlx", kMlx, Memory::other),
    format("urresulterroroutofdevicememory", "level_zero", "xpu", kNoNumbers),
    format("urresulterroroutofresources", "level_zero", "xpu", kNoNumbers),
    format("defaultcpuallocator", "torch_cpu_allocator", "host", kCpu, Memory::host),
    format("arraymemoryerror", "numpy", "host", kNumpy, Memory::host),
    format("taskwaskilledduetothenoderunninglowonmemory", "ray_node", "host", kNoNumbers, Memory::host),
    format("ray-oom-prevention", "ray_node", "host", kNoNumbers, Memory::host),
    format("exitswithreturncode=-9", "exit_-9", "host", kNoNumbers, Memory::host),
    format("exitcode:-9", "exit_-9", "host", kNoNumbers, Memory::host),
    format("exitcode-9", "exit_-9", "host", kNoNumbers, Memory::host),
    format("outofmemory:killedprocess", "linux_oom_killer", "host", kNoNumbers, Memory::host),
    format("outofmemory:killprocess", "linux_oom_killer", "host", kNoNumbers, Memory::host),
    format("invokedoom-killer", "linux_oom_killer", "host", kNoNumbers, Memory::host),
    format("wouldexceedallowedmemory", "torch_cuda_malloc_async", "cuda", kAsync),
    format("memorymappingfailedwithoomondevice", "torch_expandable_mapping", "cuda", kMapping),
    format("allocationfailedforsize::", "habana", "hpu", kHpu),
    format("compilepermanenterror", "xla_compile", "tpu", kXla),
    format("attemptingtoreserve", "xla_reserve", "tpu", kJax),
    format("whiletryingtoallocate", "xla_allocate", "", kJax),
    format("oomwhenallocatingtensorwithshape[", "tensorflow", "", kNoNumbers),
    format("cannotallocate", "paddle", "cuda", kPaddle, Memory::device, true),
    format("[mallocorwait]", "mlx", "mlx", kMlx),
    format("commandbufferexecutionfailed:insufficientmemory", "metal", "mps", kNoNumbers),
    format("mpsbackendoutofmemory", "torch_mps", "mps", kMps),
    format("noavailablememoryforthecacheblocks", "vllm_cache_blocks", "", kNoNumbers),
    format("freememoryondevice(", "vllm_startup", "", kNoNumbers),
    format("cublasstatusallocfailed", "cublas", "cuda", kNoNumbers),
    format("cudafailure2'outofmemory'", "nccl", "cuda", kNoNumbers),
    format("cudafailure'outofmemory'", "nccl", "cuda", kNoNumbers),
    format("erroroutofmemoryatline", "bitsandbytes", "cuda", kNoNumbers),
    format("curesulterror:2(outofmemory)", "cuda_driver", "cuda", kNoNumbers),
    format("cudaerroroutofmemory", "cuda_driver", "cuda", kNoNumbers),
    format("cudaerror:outofmemory", "torch_cuda_error", "cuda", kNoNumbers),
    format("hiperror:outofmemory", "torch_cuda_error", "hip", kNoNumbers),
    format("triedtoallocate", "torch", "", kTorch, Memory::device, true),
    format("oftheallocatedmemory", "torch", "", kTorch, Memory::device, true),
    format("tryingtoallocate", "words", "", kProse, Memory::device, true),
};

// The version that first wrote a text like this, by marks in it; the last row that matches counts.
struct Edition {
  std::string_view mark;
  const char* id;
};
constexpr Edition kEditions[] = {
    {"cached)", "torch_1.0"},          {"reservedintotal", "torch_1.4"},
    {"maxsplitsizemb", "torch_1.10"},  {"torch.cuda.outofmemoryerror", "torch_1.13"},
    {"ofwhich", "torch_2.1"},          {"expandablesegments", "torch_2.2"},
    {"privatepools", "torch_2.4"},     {"torch.outofmemoryerror", "torch_2.5"},
    {"pytorchallocconf", "torch_2.9"},
};
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
  for (const Format& format : kFormats) {
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
  for (std::size_t i = 0; i < format.field_count; ++i) {
    const FieldWords& words = format.fields[i];
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
  for (const Edition& edition : kEditions) {
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
  if (anchor.format->fields == kTorch) {
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

// MPS and a few others state their numbers before the words "Tried to allocate".
bool continues(const Message& last, const Format& format, std::size_t at) {
  const bool same = last.memory == format.memory && at - last.at < 400;
  if (std::string_view(format.id) == "torch" || std::string_view(format.id) == "words")
    return same && (std::string_view(last.format) == "torch_mps" || std::string_view(last.format) == "xla_allocate" ||
                    std::string_view(last.format).starts_with("torch_cpu") ||
                    (format.anchor == "oftheallocatedmemory" && std::string_view(last.format).starts_with("torch")));
  return same && std::string_view(last.format) == format.id && at - last.at < 40;
}

}  // namespace

std::vector<Message> read_messages(const Squashed& squashed, std::size_t most) {
  const std::string_view text = squashed.text();
  const std::vector<Anchor> anchors = anchors_in(text, most * 4);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < anchors.size() && messages.size() < most; ++i) {
    const Format& format = *anchors[i].format;
    if (!messages.empty() && continues(messages.back(), format, anchors[i].at)) continue;
    if (!messages.empty() && messages.back().memory == Memory::host && format.anchor == "triedtoallocate" &&
        anchors[i].at - messages.back().at < 80)
      continue;  // DefaultCPUAllocator: "you tried to allocate"
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
