// kernels_warps.cu - see kernels_elements.cu.
#include "probe/device/flash_backward.cc"  // NOLINT(bugprone-suspicious-include)
#include "probe/device/flash_forward.cc"   // NOLINT(bugprone-suspicious-include)
#include "probe/device/grouped.cc"         // NOLINT(bugprone-suspicious-include)
