// kernels_rows.cu - see kernels_elements.cu.
#include "probe/device/complex.cc"  // NOLINT(bugprone-suspicious-include)
#include "probe/device/image.cc"    // NOLINT(bugprone-suspicious-include)
#include "probe/device/loss.cc"     // NOLINT(bugprone-suspicious-include)
#include "probe/device/move.cc"     // NOLINT(bugprone-suspicious-include)
#include "probe/device/quant.cc"    // NOLINT(bugprone-suspicious-include)
#include "probe/device/reduce.cc"   // NOLINT(bugprone-suspicious-include)
#include "probe/device/rows.cc"     // NOLINT(bugprone-suspicious-include)
