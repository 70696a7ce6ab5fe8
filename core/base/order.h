// order.h - the stable order of things that stay where they are. One compiled sort serves every caller: the standard
// library's is compiled anew for each, and a browser downloads every copy.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ledger {

// Indices of `count` things so that before(context, later, earlier) holds nowhere; equals keep their places.
std::vector<std::uint32_t> stable_order(std::size_t count, const void* context,
                                        bool (*before)(const void* context, std::uint32_t a, std::uint32_t b));

template <class T, bool (*Before)(const T& a, const T& b)>
std::vector<std::uint32_t> stable_order(const std::vector<T>& things) {
  return stable_order(things.size(), things.data(), [](const void* data, std::uint32_t a, std::uint32_t b) {
    const T* all = static_cast<const T*>(data);
    return Before(all[a], all[b]);
  });
}

template <class T, bool (*Before)(const T& a, const T& b)>
void sort_stably(std::vector<T>& things) {
  std::vector<T> sorted;
  sorted.reserve(things.size());
  for (const std::uint32_t i : stable_order<T, Before>(things))
    sorted.push_back(std::move(things[i]));
  things = std::move(sorted);
}

}  // namespace ledger
