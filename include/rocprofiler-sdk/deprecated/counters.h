/* rocprofiler-sdk: older functions of counters. */
#ifndef ROCPROFILER_SDK_DEPRECATED_COUNTERS_H_
#define ROCPROFILER_SDK_DEPRECATED_COUNTERS_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Told of a counter's dimensions. */
typedef rocprofiler_status_t (*rocprofiler_available_dimensions_cb_t)(rocprofiler_counter_id_t id,
                                                                      const rocprofiler_counter_record_dimension_info_t* dim_info,
                                                                      size_t num_dims,
                                                                      void* user_data);

/* Tells of a counter's dimensions. */
rocprofiler_status_t
rocprofiler_iterate_counter_dimensions(rocprofiler_counter_id_t id,
                                       rocprofiler_available_dimensions_cb_t info_cb,
                                       void* user_data) ROCPROFILER_API;

/* How many values a counter has. */
rocprofiler_status_t
rocprofiler_query_counter_instance_count(rocprofiler_agent_id_t agent_id,
                                         rocprofiler_counter_id_t counter_id,
                                         size_t* instance_count) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
