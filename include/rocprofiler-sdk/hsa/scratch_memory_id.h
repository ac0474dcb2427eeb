/* rocprofiler-sdk: what the runtime says of a scratch allocation.
 */
#ifndef ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ID_H_
#define ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ID_H_

#include <rocprofiler-sdk/defines.h>

ROCPROFILER_EXTERN_C_INIT

/* As bits. */
typedef enum rocprofiler_scratch_alloc_flag_t
{
    ROCPROFILER_SCRATCH_ALLOC_FLAG_NONE = 0,
    ROCPROFILER_SCRATCH_ALLOC_FLAG_USE_ONCE = 1,
    ROCPROFILER_SCRATCH_ALLOC_FLAG_ALT = 2
} rocprofiler_scratch_alloc_flag_t;

ROCPROFILER_EXTERN_C_FINI

#endif
