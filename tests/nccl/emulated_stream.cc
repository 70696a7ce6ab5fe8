#include "tests/nccl/emulated_stream.h"

ledger::emulated::Stream* emulated_stream() {
  static ledger::emulated::Stream stream;
  return &stream;
}
