/* rocprofiler-sdk: OpenMP's tool interface. Its runtime asks for a tool once, when it starts, so events of OpenMP come only
   from a program that was started with the SDK. */
#ifndef ROCPROFILER_SDK_OMPT_H_
#define ROCPROFILER_SDK_OMPT_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/ompt/api_args.h>
#include <rocprofiler-sdk/ompt/api_id.h>

ROCPROFILER_EXTERN_C_INIT

/* Stores 1 if a runtime of OpenMP has made the SDK its tool, else 0. */
rocprofiler_status_t rocprofiler_ompt_is_initialized(int* status) ROCPROFILER_API;

/* Stores 1 if that runtime has ended, else 0. */
rocprofiler_status_t rocprofiler_ompt_is_finalized(int* status) ROCPROFILER_API;

/* What a tool's own ompt_start_tool returns where it leaves OpenMP's events to the SDK; NULL where a runtime has the SDK already. */
ompt_start_tool_result_t* rocprofiler_ompt_start_tool(unsigned int omp_version, const char* runtime_version) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
