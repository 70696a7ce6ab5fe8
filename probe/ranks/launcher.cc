#include "probe/ranks/launcher.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <optional>

#include "probe/initial_values.h"

namespace ledger {
namespace {

using Variable = std::function<const char*(const char*)>;

// Sources: torch/distributed/run.py, "Environment Variables"; Open MPI's FAQ, "What environment variables"; MPICH
// src/pm/hydra/proxy (PMI_*, MPI_LOCAL*); srun(1), OUTPUT ENVIRONMENT VARIABLES. The first that has a rank counts: a
// launcher may itself have been started by a later one.
struct LauncherRow {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;  // "": not told
};
constexpr LauncherRow kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
};

constexpr const char* kAddresses[] = {"PROBE_MASTER_ADDR", "MASTER_ADDR"};
constexpr const char* kNodeLists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
constexpr const char* kJobs[] = {"SLURM_JOB_ID", "PMIX_NAMESPACE"};  // tell runs on one machine apart
constexpr std::uint16_t kUsualPort = 29400;
constexpr std::uint64_t kFirstJobPort = 20000, kJobPorts = 20000;
constexpr std::uint64_t kMostRanks = 65536;

std::optional<std::uint64_t> number(const char* text) {
  if (text == nullptr || *text < '0' || *text > '9') return std::nullopt;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (*end != '\0' || value > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
  return value;
}

const char* first_set(const Variable& variable, const char* const* names, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const char* const text = variable(names[i]);
    if (text != nullptr && *text != '\0') return text;
  }
  return nullptr;
}

// Reads the variable `name` into `value`; says what is wrong with it, or "".
std::string read(const Variable& variable, const char* name, std::uint64_t& value) {
  const char* const text = variable(name);
  if (text == nullptr) return std::string(name) + " is not set";
  const std::optional<std::uint64_t> read = number(text);
  if (!read) return std::string(name) + " is '" + text + "', which is not a number";
  value = *read;
  return "";
}

std::string contradiction(const LauncherRow& row, const RankPlace& p) {
  const auto says = [](const char* name, std::uint64_t value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  if (p.world == 0 || p.world > kMostRanks) return says(row.world, p.world) + " is not a number of ranks";
  if (p.rank >= p.world)
    return says(row.rank, p.rank) + " contradicts " + says(row.world, p.world) + ": ranks are counted from 0";
  if (p.local_world == 0) return "";
  if (p.local_rank >= p.local_world)
    return says(row.local_rank, p.local_rank) + " contradicts " + says(row.local_world, p.local_world);
  if (p.local_world > p.world) return says(row.local_world, p.local_world) + " contradicts " + says(row.world, p.world);
  return "";
}

std::string read_row(const LauncherRow& row, const Variable& variable, RankPlace& place) {
  std::string error = read(variable, row.rank, place.rank);
  if (error.empty()) error = read(variable, row.world, place.world);
  if (error.empty() && variable(row.local_rank) != nullptr) error = read(variable, row.local_rank, place.local_rank);
  const bool told = *row.local_world != '\0' && variable(row.local_world) != nullptr;
  if (error.empty() && told) error = read(variable, row.local_world, place.local_world);
  return error.empty() ? contradiction(row, place) : error;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

std::string find_address(const Variable& variable, RankPlace& place) {
  const char* const given = first_set(variable, kAddresses, std::size(kAddresses));
  const char* const nodes = first_set(variable, kNodeLists, std::size(kNodeLists));
  place.one_machine = place.local_world == place.world || (given != nullptr && is_loopback(given));
  if (place.one_machine) {
    place.address = "127.0.0.1";
  } else if (given != nullptr) {
    place.address = given;
  } else if (nodes != nullptr) {
    place.address = first_host(nodes);
  } else {
    return "MASTER_ADDR is not set: name the machine of rank 0";
  }
  return "";
}

// torchrun's agent listens at MASTER_PORT itself: ours is the next one.
std::string find_port(const Variable& variable, RankPlace& place) {
  std::uint64_t port = kUsualPort;
  std::string error;
  if (variable("PROBE_MASTER_PORT") != nullptr) {
    error = read(variable, "PROBE_MASTER_PORT", port);
  } else if (variable("MASTER_PORT") != nullptr) {
    error = read(variable, "MASTER_PORT", port);
    ++port;
  } else if (const char* const job = first_set(variable, kJobs, std::size(kJobs))) {
    port = kFirstJobPort + fnv1a64(job) % kJobPorts;
  }
  if (!error.empty()) return error;
  if (port == 0 || port > 65535) return "there is no port " + std::to_string(port);
  place.port = static_cast<std::uint16_t>(port);
  return "";
}

}  // namespace

std::string first_host(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of("-,]", bracket);
  if (end == std::string::npos) return list.substr(0, bracket);
  const std::size_t close = list.find(']', bracket);
  const std::string suffix =
      close == std::string::npos ? "" : list.substr(close + 1, list.find(',', close) - close - 1);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) + suffix;
}

FoundPlace find_place(const Variable& variable) {
  FoundPlace found;
  const auto row = std::find_if(std::begin(kLaunchers), std::end(kLaunchers),
                                [&](const LauncherRow& r) { return variable(r.rank) != nullptr; });
  if (row == std::end(kLaunchers)) {
    if (variable("WORLD_SIZE") != nullptr && number(variable("WORLD_SIZE")) != std::uint64_t{1})
      found.error = "WORLD_SIZE is set and RANK is not: which rank is this?";
    return found;
  }
  RankPlace& place = found.place;
  found.error = read_row(*row, variable, place);
  // A batch script of SLURM is a process with a number, but no step of several.
  if (row == std::end(kLaunchers) - 1 && variable(row->world) == nullptr) return {};
  if (!found.error.empty()) return found;
  if (place.world == 1) return {};
  place.launcher = row->name;
  found.error = find_address(variable, place);
  if (found.error.empty()) found.error = find_port(variable, place);
  return found;
}

}  // namespace ledger
