/* rocattach: the types of the interface. */
#ifndef ROCPROFILER_SDK_ROCATTACH_TYPES_H_
#define ROCPROFILER_SDK_ROCATTACH_TYPES_H_

#include <rocprofiler-sdk-rocattach/defines.h>
#include <stdint.h>

ROCATTACH_EXTERN_C_INIT

typedef enum rocattach_status_t
{
    ROCATTACH_STATUS_SUCCESS                                    = 0,
    ROCATTACH_STATUS_ERROR                                      = 1, /* none of the below; standard error says what */
    ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT                     = 2, /* no pid, no session with it, or one already */
    ROCATTACH_STATUS_ERROR_NOT_SUPPORTED                        = 3,
    ROCATTACH_STATUS_ERROR_PTRACE_ERROR                         = 4, /* the process could not be entered */
    ROCATTACH_STATUS_ERROR_PTRACE_OPERATION_NOT_PERMITTED       = 5,
    ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND             = 6,
    ROCATTACH_STATUS_LAST                                       = 7
} rocattach_status_t;

typedef struct rocattach_version_triplet_t
{
    uint32_t major;
    uint32_t minor;
    uint32_t patch;
} rocattach_version_triplet_t;

ROCATTACH_EXTERN_C_FINI

#endif
