// kernels_elements.cu - the device kernels (probe/device) for the GPU; a few files, for each costs seconds of headers.
#include "probe/device/collective.cc"   // NOLINT(bugprone-suspicious-include)
#include "probe/device/create.cc"       // NOLINT(bugprone-suspicious-include): compiled once more, for this device
#include "probe/device/elementwise.cc"  // NOLINT(bugprone-suspicious-include)
#include "probe/device/fused.cc"        // NOLINT(bugprone-suspicious-include)
#include "probe/device/optimizer.cc"    // NOLINT(bugprone-suspicious-include)
