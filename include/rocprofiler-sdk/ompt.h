/* rocprofiler-sdk: OpenMP's tool interface. Not served: the functions answer ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED or NULL.
 */
#ifndef ROCPROFILER_SDK_OMPT_H_
#define ROCPROFILER_SDK_OMPT_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/ompt/api_id.h>

ROCPROFILER_EXTERN_C_INIT

/* Of OpenMP's own header, <omp-tools.h>. */
struct ompt_start_tool_result_t;

/* Whether OpenMP has begun to be traced. */
rocprofiler_status_t rocprofiler_ompt_is_initialized(int* status) ROCPROFILER_API;

/* Whether it has ended. */
rocprofiler_status_t rocprofiler_ompt_is_finalized(int* status) ROCPROFILER_API;

/* For an OpenMP program that wants to name the tool itself. */
struct ompt_start_tool_result_t* rocprofiler_ompt_start_tool(unsigned int omp_version, const char* runtime_version) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
