// host_device.h - one source for both processors: what nvcc must be told of a function that g++ need not be.
#pragma once

#if defined(__CUDACC__)
#define LEDGER_HOST_DEVICE __host__ __device__
#define LEDGER_DEVICE_ONLY __device__
#define LEDGER_UNROLL _Pragma("unroll")  // arrays that are to live in registers need it
#else
#define LEDGER_HOST_DEVICE
#define LEDGER_DEVICE_ONLY
#define LEDGER_UNROLL
#endif
