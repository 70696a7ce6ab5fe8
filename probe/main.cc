#include <cstdio>

int main() {
  std::puts("probe " LEDGER_VERSION);
}
