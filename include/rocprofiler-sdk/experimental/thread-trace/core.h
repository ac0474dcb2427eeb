/* rocprofiler-sdk: thread traces: what is asked for, and how the GPU's bytes come. */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_CORE_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_CORE_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <stddef.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* What a parameter sets. */
typedef enum rocprofiler_thread_trace_parameter_type_t
{
    ROCPROFILER_THREAD_TRACE_PARAMETER_TARGET_CU = 0,                /* the compute unit (or work group processor) */
    ROCPROFILER_THREAD_TRACE_PARAMETER_SHADER_ENGINE_MASK = 1,       /* a bit for each shader engine */
    ROCPROFILER_THREAD_TRACE_PARAMETER_BUFFER_SIZE = 2,              /* bytes of the GPU's buffer, of all engines together */
    ROCPROFILER_THREAD_TRACE_PARAMETER_SIMD_SELECT = 3,              /* a bit for each SIMD on gfx9; else the number of one */
    ROCPROFILER_THREAD_TRACE_PARAMETER_PERFCOUNTERS_CTRL = 4,        /* period of counters, 1 to 32; 0: none */
    ROCPROFILER_THREAD_TRACE_PARAMETER_PERFCOUNTER = 5,              /* a counter and its SIMDs */
    ROCPROFILER_THREAD_TRACE_PARAMETER_SERIALIZE_ALL = 6,            /* also kernels that are not traced run one by one */
    ROCPROFILER_THREAD_TRACE_PARAMETER_PERFCOUNTER_EXCLUDE_MASK = 7, /* a bit for each compute unit without counters */
    ROCPROFILER_THREAD_TRACE_PARAMETER_NO_DETAIL = 8,                /* no instructions, only what concerns the engine */
    ROCPROFILER_THREAD_TRACE_PARAMETER_LAST = 9
} rocprofiler_thread_trace_parameter_type_t;

/* A parameter and its value. */
typedef struct rocprofiler_thread_trace_parameter_t
{
    rocprofiler_thread_trace_parameter_type_t type;
    union
    {
        uint64_t value;
        __extension__ struct
        {
            rocprofiler_counter_id_t counter_id; /* for PERFCOUNTER */
            uint64_t simd_mask : 4;
        };
    };
} rocprofiler_thread_trace_parameter_t;

/* Handed the bytes of a shader engine, which live until it returns. `userdata` is the dispatch callback's, or the service's. */
typedef void (*rocprofiler_thread_trace_shader_data_callback_t)(rocprofiler_agent_id_t agent,
                                                                int64_t shader_engine_id,
                                                                void* data,
                                                                size_t data_size,
                                                                rocprofiler_user_data_t userdata);

ROCPROFILER_EXTERN_C_FINI

#endif
