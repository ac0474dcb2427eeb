/* rocprofiler-sdk: contexts: services that are started and stopped together.
 */
#ifndef ROCPROFILER_SDK_CONTEXT_H_
#define ROCPROFILER_SDK_CONTEXT_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Makes a context; only while tools initialize. */
rocprofiler_status_t rocprofiler_create_context(rocprofiler_context_id_t* context_id) ROCPROFILER_API;

/* Starts its services. ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID: it has none. */
rocprofiler_status_t rocprofiler_start_context(rocprofiler_context_id_t context_id) ROCPROFILER_API;

/* Stops them. Records of what was before still arrive. ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED: it does not run. */
rocprofiler_status_t rocprofiler_stop_context(rocprofiler_context_id_t context_id) ROCPROFILER_API;

/* Stores 1 if it runs, else 0. */
rocprofiler_status_t rocprofiler_context_is_active(rocprofiler_context_id_t context_id, int* status) ROCPROFILER_API;

/* Stores 1 if there is such a context, else 0. */
rocprofiler_status_t rocprofiler_context_is_valid(rocprofiler_context_id_t context_id, int* status) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
