#include "core/base/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ledger {
namespace {

struct Card {
  int rank;
  int place;  // before sorting
  bool operator==(const Card&) const = default;
};
bool lower(const Card& a, const Card& b) {
  return a.rank < b.rank;
}

TEST(Order, IsTheStandardLibrarysStableSort) {
  std::mt19937 random(1);
  for (int size : {0, 1, 2, 3, 5, 8, 13, 64, 100, 1000}) {
    for (int ranks : {1, 3, 1000}) {
      std::vector<Card> cards;
      for (int i = 0; i < size; ++i)
        cards.push_back({static_cast<int>(random() % static_cast<unsigned>(ranks)), i});
      std::vector<Card> expected = cards;
      std::stable_sort(expected.begin(), expected.end(), lower);
      sort_stably<Card, lower>(cards);
      EXPECT_EQ(cards, expected) << size << " of " << ranks;
    }
  }
}

}  // namespace
}  // namespace ledger
