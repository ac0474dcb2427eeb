/* rocprofiler-sdk: kernels that run several times while a tool counts. The types are AMD's; this library replays nothing, and
 * refuses the callback kind KERNEL_REPLAY.
 */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_KERNEL_REPLAY_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_KERNEL_REPLAY_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* CONFIG is before the first pass of a kernel, PASS is each pass. */
typedef enum rocprofiler_kernel_replay_operation_t
{
    ROCPROFILER_KERNEL_REPLAY_NONE = 0,
    ROCPROFILER_KERNEL_REPLAY_CONFIG = 1,
    ROCPROFILER_KERNEL_REPLAY_PASS = 2,
    ROCPROFILER_KERNEL_REPLAY_LAST = 3
} rocprofiler_kernel_replay_operation_t;

/* Returns how many passes a kernel has; 0: until rocprofiler_kernel_replay_continue_cb_t ends them. */
typedef uint64_t (*rocprofiler_kernel_replay_pass_count_cb_t)(rocprofiler_kernel_dispatch_info_t dispatch_info,
                                                              rocprofiler_user_data_t user_data);

/* Returns not 0 for a further pass. */
typedef int (*rocprofiler_kernel_replay_continue_cb_t)(rocprofiler_kernel_dispatch_info_t dispatch_info,
                                                       uint64_t current_pass,
                                                       uint64_t total_passes,
                                                       rocprofiler_user_data_t user_data);

/* Starts or stops a context for the passes that follow. */
typedef rocprofiler_status_t (*rocprofiler_kernel_replay_context_cb_t)(rocprofiler_context_id_t context_id);

/* The payload of a callback. */
typedef struct rocprofiler_callback_tracing_kernel_replay_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_kernel_dispatch_info_t dispatch_info;
    uint64_t current_pass; /* from 0 */
    uint64_t total_passes; /* 0: not known */
    rocprofiler_kernel_replay_pass_count_cb_t replay_pass_count; /* of the tool; NULL: one pass */
    rocprofiler_kernel_replay_continue_cb_t replay_continue;
    rocprofiler_kernel_replay_context_cb_t replay_start_context;
    rocprofiler_kernel_replay_context_cb_t replay_stop_context;
} rocprofiler_callback_tracing_kernel_replay_data_t;

ROCPROFILER_EXTERN_C_FINI

#endif
