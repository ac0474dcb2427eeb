/* rocprofiler-sdk: everything. A tool needs no more than this.
 */
#ifndef ROCPROFILER_SDK_ROCPROFILER_H_
#define ROCPROFILER_SDK_ROCPROFILER_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/version.h>
#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/buffer.h>
#include <rocprofiler-sdk/buffer_tracing.h>
#include <rocprofiler-sdk/callback_tracing.h>
#include <rocprofiler-sdk/context.h>
#include <rocprofiler-sdk/counter_config.h>
#include <rocprofiler-sdk/counters.h>
#include <rocprofiler-sdk/deprecated/counters.h>
#include <rocprofiler-sdk/deprecated/profile_config.h>
#include <rocprofiler-sdk/device_counting_service.h>
#include <rocprofiler-sdk/dispatch_counting_service.h>
#include <rocprofiler-sdk/external_correlation.h>
#include <rocprofiler-sdk/hip.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/intercept_table.h>
#include <rocprofiler-sdk/internal_threading.h>
#include <rocprofiler-sdk/kfd.h>
#include <rocprofiler-sdk/marker.h>
#include <rocprofiler-sdk/ompt.h>
#include <rocprofiler-sdk/pc_sampling.h>
#include <rocprofiler-sdk/rccl.h>
#include <rocprofiler-sdk/rocdecode.h>
#include <rocprofiler-sdk/rocjpeg.h>

/* Tools that are written against AMD's headers have these by way of HSA's, and use them without asking. */
#if defined(__cplusplus)
#    include <cassert>
#    include <cstring>
#endif

ROCPROFILER_EXTERN_C_INIT

/* The version of the library, which may be another than that of these headers. Each pointer may be NULL. */
rocprofiler_status_t rocprofiler_get_version(uint32_t* major, uint32_t* minor, uint32_t* patch) ROCPROFILER_API;

/* The same in one struct. */
rocprofiler_status_t rocprofiler_get_version_triplet(rocprofiler_version_triplet_t* info) ROCPROFILER_API;

/* The time now, of the clock that records have: CLOCK_BOOTTIME, in nanoseconds. */
rocprofiler_status_t rocprofiler_get_timestamp(rocprofiler_timestamp_t* ts) ROCPROFILER_API;

/* The calling thread, as records have it. */
rocprofiler_status_t rocprofiler_get_thread_id(rocprofiler_thread_id_t* tid) ROCPROFILER_API;

/* The name of a status, such as ROCPROFILER_STATUS_SUCCESS. NULL for a number that is none. */
const char* rocprofiler_get_status_name(rocprofiler_status_t status) ROCPROFILER_API;

/* What it means, in words. NULL for a number that is none. */
const char* rocprofiler_get_status_string(rocprofiler_status_t status) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
