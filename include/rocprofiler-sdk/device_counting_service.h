/* rocprofiler-sdk: counters of a whole device. Not yet: readings answer ROCPROFILER_STATUS_ERROR. */
#ifndef ROCPROFILER_SDK_DEVICE_COUNTING_SERVICE_H_
#define ROCPROFILER_SDK_DEVICE_COUNTING_SERVICE_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* With which a tool says what to count. */
typedef rocprofiler_status_t (*rocprofiler_device_counting_agent_cb_t)(rocprofiler_context_id_t context_id,
                                                                       rocprofiler_counter_config_id_t config_id);

/* Asked for what to count when the context starts. */
typedef void (*rocprofiler_device_counting_service_cb_t)(rocprofiler_context_id_t context_id,
                                                         rocprofiler_agent_id_t agent_id,
                                                         rocprofiler_device_counting_agent_cb_t set_config,
                                                         void* user_data);

/* Adds counting on an agent to a context. */
rocprofiler_status_t
rocprofiler_configure_device_counting_service(rocprofiler_context_id_t context_id,
                                              rocprofiler_buffer_id_t buffer_id,
                                              rocprofiler_agent_id_t agent_id,
                                              rocprofiler_device_counting_service_cb_t cb,
                                              void* user_data) ROCPROFILER_API;

/* Reads the counters now. */
rocprofiler_status_t
rocprofiler_sample_device_counting_service(rocprofiler_context_id_t context_id,
                                           rocprofiler_user_data_t user_data,
                                           rocprofiler_counter_flag_t flags,
                                           rocprofiler_counter_record_t* output_records,
                                           size_t* rec_count) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
