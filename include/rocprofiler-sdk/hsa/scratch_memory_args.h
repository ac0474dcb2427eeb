/* rocprofiler-sdk: what the runtime says of scratch memory, by operation and phase.
 */
#ifndef ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ARGS_H_
#define ROCPROFILER_SDK_HSA_SCRATCH_MEMORY_ARGS_H_

#include <rocprofiler-sdk/defines.h>
#include <stddef.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* C gives an empty struct no bytes and C++ gives it one. */
typedef struct rocprofiler_scratch_memory_no_args
{
    char empty;
} rocprofiler_scratch_memory_no_args;

typedef union rocprofiler_scratch_memory_args_t
{
    struct
    {
        uint64_t dispatch_id; /* index of the packet in its queue */
    } alloc_start;
    struct
    {
        uint64_t dispatch_id;
        size_t size;      /* bytes */
        size_t num_slots; /* waves that it is enough for */
    } alloc_end;
    struct
    {
        rocprofiler_scratch_memory_no_args no_args;
    } free_start;
    struct
    {
        rocprofiler_scratch_memory_no_args no_args;
    } free_end;
    struct
    {
        rocprofiler_scratch_memory_no_args no_args;
    } async_reclaim_start;
    struct
    {
        rocprofiler_scratch_memory_no_args no_args;
    } async_reclaim_end;
} rocprofiler_scratch_memory_args_t;

ROCPROFILER_EXTERN_C_FINI

#endif
