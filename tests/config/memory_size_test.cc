#include "core/config/memory_size.h"

#include <gtest/gtest.h>

namespace ledger {
namespace {

struct Size {
  const char* text;
  std::optional<Bytes> want;
};

TEST(MemorySize, ReadsNumbersWithUnits) {
  const Size cases[] = {
      {"0", 0},
      {"1024", 1024},
      {"1B", 1},
      {"1KiB", kKiB},
      {"1kb", 1000},
      {"512MiB", 512 * kMiB},
      {"24GiB", 24 * kGiB},
      {"24 GiB", 24 * kGiB},
      {"24gib", 24 * kGiB},
      {"24Gi", 24 * kGiB},
      {"24G", 24 * kGiB},
      {"24GB", 24'000'000'000},
      {"1.5GiB", kGiB + 512 * kMiB},
      {"23.52GiB", 25254407700},
      {"0.5KiB", 512},
      {"1TiB", 1024 * kGiB},
      {"2TB", 2'000'000'000'000},
      {"0.12345678GB", 123456000},  // six digits are read
      {"18446744073709551614", ~Bytes{0} - 1},
      {"18446744073709551616", std::nullopt},
      {"99999999999TiB", std::nullopt},
      {"", std::nullopt},
      {"GiB", std::nullopt},
      {".5GiB", std::nullopt},
      {"1.GiB", std::nullopt},
      {"-1GiB", std::nullopt},
      {"1e9", std::nullopt},
      {"24 apples", std::nullopt},
      {"24GiB!", std::nullopt},
  };
  for (const Size& c : cases)
    EXPECT_EQ(memory_size(c.text), c.want) << c.text;
}

}  // namespace
}  // namespace ledger
