// reduce.h - the same elements of several ranks made into one, in the order of ranks.
#pragma once

#include <span>

#include "probe/ranks/communicator.h"

namespace ledger {

// `parts[r]` is rank r's; all as long as `result`, which may be one of them. Computed in double, rounded once.
void reduce_parts(std::span<const std::byte* const> parts, const RankBuffer& result, ReduceOp op);

}  // namespace ledger
