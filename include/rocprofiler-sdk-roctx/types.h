/* ROCTx: types. */
#ifndef ROCPROFILER_SDK_ROCTX_TYPES_H_
#define ROCPROFILER_SDK_ROCTX_TYPES_H_

#include <rocprofiler-sdk-roctx/defines.h>

#include <stdint.h>

ROCTX_EXTERN_C_INIT

/* A range that any thread may end. */
typedef uint64_t roctx_range_id_t;

/* The number that the system knows a thread by; 0 stands for all threads. */
typedef uint64_t roctx_thread_id_t;

ROCTX_EXTERN_C_FINI

#endif
