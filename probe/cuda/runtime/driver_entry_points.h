// driver_entry_points.h - functions of the driver that is there, found by the runtime: nothing links libcuda.
#pragma once

#include "probe/cuda/driver_memory.h"

namespace ledger::cuda {

const driver::MemoryTable& driver_memory();

}  // namespace ledger::cuda
