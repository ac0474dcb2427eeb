/* rocprofiler-sdk: hardware counters: which there are, and where on an agent they have values. */
#ifndef ROCPROFILER_SDK_COUNTERS_H_
#define ROCPROFILER_SDK_COUNTERS_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* A counter. */
typedef struct rocprofiler_counter_info_v0_t
{
    rocprofiler_counter_id_t id;
    const char* name;
    const char* description;
    const char* block;
    const char* expression;
    uint8_t is_constant : 1;
    uint8_t is_derived : 1;
} rocprofiler_counter_info_v0_t;

/* A position in a dimension. */
typedef struct rocprofiler_counter_dimension_info_t
{
    uint64_t size;
    const char* dimension_name;
    size_t index;
} rocprofiler_counter_dimension_info_t;

/* One value's place in all dimensions. */
typedef struct rocprofiler_counter_record_dimension_instance_info_t
{
    uint64_t size;
    rocprofiler_counter_instance_id_t instance_id;
    uint64_t counter_id;
    uint64_t dimensions_count;
    const rocprofiler_counter_dimension_info_t** dimensions;
} rocprofiler_counter_record_dimension_instance_info_t;

/* A counter with its dimensions. */
typedef struct rocprofiler_counter_info_v1_t
{
    uint64_t size;
    rocprofiler_counter_id_t id;
    const char* name;
    const char* description;
    const char* block;
    const char* expression;
    uint8_t is_constant : 1;
    uint8_t is_derived : 1;
    uint64_t dimensions_count;
    const rocprofiler_counter_record_dimension_info_t** dimensions;
    uint64_t dimensions_instances_count;
    const rocprofiler_counter_record_dimension_instance_info_t** dimensions_instances;
} rocprofiler_counter_info_v1_t;

/* Told of an agent's counters. */
typedef rocprofiler_status_t (*rocprofiler_available_counters_cb_t)(rocprofiler_agent_id_t agent_id,
                                                                    rocprofiler_counter_id_t* counters,
                                                                    size_t num_counters,
                                                                    void* user_data);

/* The counter of a value. */
rocprofiler_status_t
rocprofiler_query_record_counter_id(rocprofiler_counter_instance_id_t id,
                                    rocprofiler_counter_id_t* counter_id) ROCPROFILER_API;

/* A value's position in a dimension. */
rocprofiler_status_t
rocprofiler_query_record_dimension_position(rocprofiler_counter_instance_id_t id,
                                            rocprofiler_counter_dimension_id_t dim,
                                            size_t* pos) ROCPROFILER_API;

/* Describes a counter; `info` is the struct of that version. */
rocprofiler_status_t
rocprofiler_query_counter_info(rocprofiler_counter_id_t counter_id,
                               rocprofiler_counter_info_version_id_t version,
                               void* info) ROCPROFILER_API;

/* Tells of an agent's counters. */
rocprofiler_status_t
rocprofiler_iterate_agent_supported_counters(rocprofiler_agent_id_t agent_id,
                                             rocprofiler_available_counters_cb_t cb,
                                             void* user_data) ROCPROFILER_API;

/* Makes a counter from an expression over others. */
rocprofiler_status_t
rocprofiler_create_counter(const char* name,
                           size_t name_len,
                           const char* expr,
                           size_t expr_len,
                           const char* description,
                           size_t description_len,
                           rocprofiler_agent_id_t agent,
                           rocprofiler_counter_id_t* counter_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
