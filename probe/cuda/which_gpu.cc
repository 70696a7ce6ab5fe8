#include "probe/cuda/which_gpu.h"

#include <algorithm>
#include <array>
#include <vector>

namespace ledger::cuda {
namespace {

std::string count(std::uint64_t number, const char* what) {
  return number == 1 ? "one " + std::string(what) : std::to_string(number) + " " + what + "s";
}

}  // namespace

ChosenGpu gpu_of_rank(const RankPlace& place, const Facts& facts) {
  if (place.world == 1) return {};
  const bool shown_one = facts.visible_devices && facts.devices == 1;
  if (shown_one) return {};  // shared_gpu() finds ranks that are shown the same
  // Where the launcher does not tell, ranks of one machine are counted as they are.
  const bool told = place.local_world != 0 || !place.one_machine;
  const std::uint64_t local = told ? place.local_rank : place.rank;
  const std::uint64_t here = told ? std::max(place.local_world, local + 1) : place.world;
  const auto devices = static_cast<std::uint64_t>(std::max(facts.devices, 0));
  if (here <= devices) return {static_cast<int>(local), ""};
  std::string text = count(here, "rank") + " on this machine and " + count(devices, "GPU") + ": each rank takes one";
  if (facts.visible_devices) text += " of those that CUDA_VISIBLE_DEVICES=\"" + *facts.visible_devices + "\" shows";
  return {0, text};
}

std::string shared_gpu(Communicator& ranks, const DeviceFacts& facts) {
  std::vector<std::array<std::uint8_t, 16>> all(static_cast<std::size_t>(ranks.world()));
  all[static_cast<std::size_t>(ranks.rank())] = facts.uuid;
  const RankBuffer bytes{reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(facts.uuid), DType::u8};
  if (!ranks.all_gather(bytes)) return "";
  for (std::size_t later = 1; later < all.size(); ++later) {
    const auto before = all.begin() + static_cast<std::ptrdiff_t>(later);
    const auto same = std::find(all.begin(), before, all[later]);
    if (same == before) continue;
    return "ranks " + std::to_string(same - all.begin()) + " and " + std::to_string(later) +
           " are on the same GPU, and NCCL wants one for each: CUDA_VISIBLE_DEVICES must be the same for all ranks "
           "of a machine, or show each another GPU";
  }
  return "";
}

}  // namespace ledger::cuda
