// kernels_tiles.cu - see kernels_elements.cu.
#include "probe/device/attention.cc"           // NOLINT(bugprone-suspicious-include)
#include "probe/device/attention_backward.cc"  // NOLINT(bugprone-suspicious-include)
#include "probe/device/cut.cc"                 // NOLINT(bugprone-suspicious-include)
#include "probe/device/kernels.cc"             // NOLINT(bugprone-suspicious-include)
#include "probe/device/matrix.cc"              // NOLINT(bugprone-suspicious-include)
#include "probe/device/routing.cc"             // NOLINT(bugprone-suspicious-include)
