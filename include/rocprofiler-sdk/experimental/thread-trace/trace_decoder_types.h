/* rocprofiler-sdk: what the trace decoder tells of a thread trace. Times are in cycles of the shader clock. */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_TRACE_DECODER_TYPES_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_TRACE_DECODER_TYPES_H_

#include <stddef.h>
#include <stdint.h>

/* INFO: what was amiss. */
typedef enum rocprofiler_thread_trace_decoder_info_t
{
    ROCPROFILER_THREAD_TRACE_DECODER_INFO_NONE = 0,
    ROCPROFILER_THREAD_TRACE_DECODER_INFO_DATA_LOST = 1,
    ROCPROFILER_THREAD_TRACE_DECODER_INFO_STITCH_INCOMPLETE = 2, /* code that the decoder was not given */
    ROCPROFILER_THREAD_TRACE_DECODER_INFO_WAVE_INCOMPLETE = 3,
    ROCPROFILER_THREAD_TRACE_DECODER_INFO_LAST = 4
} rocprofiler_thread_trace_decoder_info_t;

/* An address: in a code object, or, with the id 0, in memory. Some versions of AMD's SDK name it `addr`. */
typedef struct rocprofiler_thread_trace_decoder_pc_t
{
    union
    {
        uint64_t address;
        uint64_t addr;
    };
    uint64_t code_object_id;
} rocprofiler_thread_trace_decoder_pc_t;

/* PERFEVENT: four counters, 0 to 3 of bank 0 or 4 to 7 of bank 1. */
typedef struct rocprofiler_thread_trace_decoder_perfevent_t
{
    int64_t time;
    uint16_t events0;
    uint16_t events1;
    uint16_t events2;
    uint16_t events3;
    uint8_t CU; /* the compute unit */
    uint8_t bank;
} rocprofiler_thread_trace_decoder_perfevent_t;

/* OCCUPANCY: a wave begins (`start` 1) or ends. */
typedef struct rocprofiler_thread_trace_decoder_occupancy_t
{
    rocprofiler_thread_trace_decoder_pc_t pc; /* where it begins */
    uint64_t time;
    uint8_t reserved;
    uint8_t cu;      /* the compute unit, or the work group processor */
    uint8_t simd;    /* of it, 0 to 3 */
    uint8_t wave_id; /* slot of the SIMD */
    uint32_t start : 1;
    uint32_t _rsvd : 31;
} rocprofiler_thread_trace_decoder_occupancy_t;

/* What a wave does. */
typedef enum rocprofiler_thread_trace_decoder_wstate_type_t
{
    ROCPROFILER_THREAD_TRACE_DECODER_WSTATE_EMPTY = 0,
    ROCPROFILER_THREAD_TRACE_DECODER_WSTATE_IDLE = 1,
    ROCPROFILER_THREAD_TRACE_DECODER_WSTATE_EXEC = 2,
    ROCPROFILER_THREAD_TRACE_DECODER_WSTATE_WAIT = 3,
    ROCPROFILER_THREAD_TRACE_DECODER_WSTATE_STALL = 4,
    ROCPROFILER_THREAD_TRACE_DECODER_WSTATE_LAST = 5
} rocprofiler_thread_trace_decoder_wstate_type_t;

/* How long it did so. */
typedef struct rocprofiler_thread_trace_decoder_wave_state_t
{
    int32_t type; /* rocprofiler_thread_trace_decoder_wstate_type_t */
    int32_t duration;
} rocprofiler_thread_trace_decoder_wave_state_t;

/* What kind of instruction. */
typedef enum rocprofiler_thread_trace_decoder_inst_category_t
{
    ROCPROFILER_THREAD_TRACE_DECODER_INST_NONE = 0,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_SMEM = 1,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_SALU = 2,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_VMEM = 3,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_FLAT = 4,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_LDS = 5,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_VALU = 6,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_JUMP = 7, /* a branch that is taken */
    ROCPROFILER_THREAD_TRACE_DECODER_INST_NEXT = 8, /* one that is not */
    ROCPROFILER_THREAD_TRACE_DECODER_INST_IMMED = 9,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_CONTEXT = 10, /* a wave is saved or comes back */
    ROCPROFILER_THREAD_TRACE_DECODER_INST_MESSAGE = 11,
    ROCPROFILER_THREAD_TRACE_DECODER_INST_BVH = 12, /* ray tracing */
    ROCPROFILER_THREAD_TRACE_DECODER_INST_LAST = 13
} rocprofiler_thread_trace_decoder_inst_category_t;

/* An instruction: it is tried at `time`, issued `stall` later, and done (gfx9: issued) `duration` after `time`. */
typedef struct rocprofiler_thread_trace_decoder_inst_t
{
    uint32_t category : 8; /* rocprofiler_thread_trace_decoder_inst_category_t */
    uint32_t stall : 24;
    int32_t duration;
    int64_t time;
    rocprofiler_thread_trace_decoder_pc_t pc;
} rocprofiler_thread_trace_decoder_inst_t;

/* WAVE: a wave of the compute unit and SIMD that were asked for, from begin to end. */
typedef struct rocprofiler_thread_trace_decoder_wave_t
{
    uint8_t cu;
    uint8_t simd;
    uint8_t wave_id;
    uint8_t contexts; /* how often it was saved and came back */
    uint32_t _rsvd1;
    uint32_t _rsvd2;
    uint32_t _rsvd3;
    int64_t begin_time;
    int64_t end_time;
    uint64_t timeline_size;
    uint64_t instructions_size;
    rocprofiler_thread_trace_decoder_wave_state_t* timeline_array;
    rocprofiler_thread_trace_decoder_inst_t* instructions_array; /* in the order of time */
} rocprofiler_thread_trace_decoder_wave_t;

/* REALTIME: one moment by two clocks. */
typedef struct rocprofiler_thread_trace_decoder_realtime_t
{
    int64_t shader_clock;
    uint64_t realtime_clock; /* in units of RT_FREQUENCY, an event of its own, in Hz */
    uint64_t reserved;
} rocprofiler_thread_trace_decoder_realtime_t;

/* Who wrote SHADERDATA. */
typedef enum rocprofiler_thread_trace_decoder_shaderdata_flags_t
{
    ROCPROFILER_THREAD_TRACE_DECODER_SHADERDATA_FLAGS_IMM = 0,
    ROCPROFILER_THREAD_TRACE_DECODER_SHADERDATA_FLAGS_PRIV = 1 /* the trap handler */
} rocprofiler_thread_trace_decoder_shaderdata_flags_t;

/* SHADERDATA: a value that the code wrote by s_ttracedata. */
typedef struct rocprofiler_thread_trace_decoder_shaderdata_t
{
    int64_t time;
    uint64_t value;
    uint8_t cu;
    uint8_t simd;
    uint8_t wave_id;
    uint8_t flags; /* rocprofiler_thread_trace_decoder_shaderdata_flags_t */
    uint32_t reserved;
} rocprofiler_thread_trace_decoder_shaderdata_t;

/* What the callback is handed. */
typedef enum rocprofiler_thread_trace_decoder_record_type_t
{
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_GFXIP = 0, /* comes first: the major number of the GPU, uint64_t */
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_OCCUPANCY = 1,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_PERFEVENT = 2,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_WAVE = 3,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_INFO = 4,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_DEBUG = 5,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_SHADERDATA = 6,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_REALTIME = 7,
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_RT_FREQUENCY = 8, /* Hz, uint64_t */
    ROCPROFILER_THREAD_TRACE_DECODER_RECORD_LAST = 9
} rocprofiler_thread_trace_decoder_record_type_t;

#endif
