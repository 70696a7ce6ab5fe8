#include "core/trace/ops.h"

#include <array>

namespace ledger {
namespace {

constexpr std::array<const char*, kOpKinds> kNames = {
#define LEDGER_OP_NAME(kind, name) name,
    LEDGER_OPS(LEDGER_OP_NAME)
#undef LEDGER_OP_NAME
};

}  // namespace

const char* op_name(OpKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace ledger
