/* rocprofiler-sdk: ranges of kernels that run several times while a tool counts. The types are AMD's; this library replays
 * nothing, and the number of AMD's callback kind RANGE_REPLAY is not known here, so that no context can be configured for it.
 */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_RANGE_REPLAY_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_RANGE_REPLAY_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* CONFIG is at the start of a range, PASS is each further pass, CLOSE tells how it ended. */
typedef enum rocprofiler_range_replay_operation_t
{
    ROCPROFILER_RANGE_REPLAY_NONE = 0,
    ROCPROFILER_RANGE_REPLAY_CONFIG = 1,
    ROCPROFILER_RANGE_REPLAY_PASS = 2,
    ROCPROFILER_RANGE_REPLAY_CLOSE = 3,
    ROCPROFILER_RANGE_REPLAY_LAST = 4
} rocprofiler_range_replay_operation_t;

/* How a range ended: replayed, or why not. */
typedef enum rocprofiler_range_replay_status_t
{
    ROCPROFILER_RANGE_REPLAY_STATUS_REPLAYED = 0,
    ROCPROFILER_RANGE_REPLAY_STATUS_NO_DISPATCH = 1,
    ROCPROFILER_RANGE_REPLAY_STATUS_NO_PASS_COUNT = 2,
    ROCPROFILER_RANGE_REPLAY_STATUS_MULTI_QUEUE = 3,
    ROCPROFILER_RANGE_REPLAY_STATUS_MULTI_AGENT = 4,
    ROCPROFILER_RANGE_REPLAY_STATUS_GRAPH_LAUNCH = 5,
    ROCPROFILER_RANGE_REPLAY_STATUS_UNKNOWN_KERNARG_SIZE = 6,
    ROCPROFILER_RANGE_REPLAY_STATUS_MEMORY_COPY_IN_RANGE = 7,
    ROCPROFILER_RANGE_REPLAY_STATUS_CONCURRENT_DISPATCH = 8,
    ROCPROFILER_RANGE_REPLAY_STATUS_PROGRAM_TOO_LARGE = 9,
    ROCPROFILER_RANGE_REPLAY_STATUS_SNAPSHOT_FAILED = 10,
    ROCPROFILER_RANGE_REPLAY_STATUS_STAGING_FAILED = 11,
    ROCPROFILER_RANGE_REPLAY_STATUS_ALLOCATION_CHANGED_IN_RANGE = 12,
    ROCPROFILER_RANGE_REPLAY_STATUS_UNSUPPORTED_QUEUE_PATH = 13,
    ROCPROFILER_RANGE_REPLAY_STATUS_CODE_OBJECT_CHANGED_IN_RANGE = 14,
    ROCPROFILER_RANGE_REPLAY_STATUS_LAST = 15
} rocprofiler_range_replay_status_t;

/* The payload of a callback. */
typedef struct rocprofiler_callback_tracing_range_replay_data_t
{
    uint64_t size; /* bytes of this struct */
    uint64_t range_id;
    /* Of the tool: how many passes, the program's own among them. NULL: only that one. */
    uint64_t (*pass_count_cb)(uint64_t range_id, rocprofiler_user_data_t user_data);
    /* Of the tool: not 0 for a further pass. */
    int (*replay_continue_cb)(uint64_t range_id, uint64_t current_pass, uint64_t total_passes, rocprofiler_user_data_t user_data);
    uint64_t current_pass; /* from 1: 0 is the program's own */
    uint64_t total_passes; /* 0: not known */
    rocprofiler_status_t (*replay_local_start_context_cb)(rocprofiler_context_id_t context_id);
    rocprofiler_status_t (*replay_local_stop_context_cb)(rocprofiler_context_id_t context_id);
    rocprofiler_agent_id_t agent_id;
    uint64_t dispatch_count;
    rocprofiler_range_replay_status_t status;
    uint64_t divergence_count; /* regions of memory that were not the same after the last pass */
} rocprofiler_callback_tracing_range_replay_data_t;

/* Starts a range on the calling thread. Here: ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND, since no context replays ranges. */
rocprofiler_status_t rocprofiler_range_replay_begin(uint64_t range_id) ROCPROFILER_API;

/* Ends it. Here: ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, since none can be open. */
rocprofiler_status_t rocprofiler_range_replay_end(void) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
