/* rocprofiler-sdk: counters that a tool defines. */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_COUNTERS_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_COUNTERS_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Takes definitions in YAML, `size` bytes long, before counters are asked for. */
rocprofiler_status_t
rocprofiler_load_counter_definition(const char* yaml, size_t size, rocprofiler_counter_flag_t flags) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
