/* rocprofiler-sdk: counters that the GPU streams while kernels run (SPM). midair asks for none: the answer
 * is the status of the first thing that lacks, in the arguments or on the machine.
 */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_SPM_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_SPM_H_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/counters.h>
#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/device_counting_service.h>
#include <rocprofiler-sdk/fwd.h>
#include <stddef.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* What a parameter sets. */
typedef enum rocprofiler_spm_parameter_type_t
{
    ROCPROFILER_SPM_PARAMETER_TYPE_NONE = 0,
    ROCPROFILER_SPM_PARAMETER_TYPE_SAMPLE_INTERVAL_SCLK_CYCLES = 1, /* cycles of the shader clock between samples */
    ROCPROFILER_SPM_PARAMETER_TYPE_LAST = 2
} rocprofiler_spm_parameter_type_t;

/* What an agent allows. */
typedef struct rocprofiler_spm_available_configuration_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_spm_parameter_type_t type;
    union
    {
        struct
        {
            uint64_t min_interval;
            uint64_t max_interval;
        } interval;
    };
} rocprofiler_spm_available_configuration_t;

/* A parameter and its value. */
typedef struct rocprofiler_spm_parameters_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_spm_parameter_type_t type;
    uint64_t value;
} rocprofiler_spm_parameters_t;

/* What records of one callback are. */
typedef enum rocprofiler_spm_record_flag_t
{
    ROCPROFILER_SPM_RECORD_FLAG_NONE = 0,
    ROCPROFILER_SPM_RECORD_FLAG_DATA = 1,
    ROCPROFILER_SPM_RECORD_FLAG_DATA_LOSS = 2,    /* some before these were lost */
    ROCPROFILER_SPM_RECORD_FLAG_DISPATCH_END = 4, /* none: the dispatch has ended */
    ROCPROFILER_SPM_RECORD_FLAG_LAST = 8
} rocprofiler_spm_record_flag_t;

/* The dispatch. */
typedef struct rocprofiler_spm_dispatch_counting_service_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_async_correlation_id_t correlation_id;
    rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_spm_dispatch_counting_service_data_t;

/* A sample. */
typedef struct rocprofiler_spm_counter_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_dispatch_id_t dispatch_id;
    rocprofiler_counter_instance_id_t id;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_timestamp_t timestamp;
    double value;
} rocprofiler_spm_counter_record_t;

/* Handed what an agent allows; it lives as long as the library. */
typedef rocprofiler_status_t (*rocprofiler_spm_available_configurations_cb_t)(
    const rocprofiler_spm_available_configuration_t** config,
    size_t num_config,
    void* user_data);

/* Asked for what to sample in a dispatch, before it runs. */
typedef void (*rocprofiler_spm_dispatch_counting_service_cb_t)(
    const rocprofiler_spm_dispatch_counting_service_data_t* dispatch_data,
    rocprofiler_counter_config_id_t* config,
    rocprofiler_user_data_t* user_data,
    void* callback_data_args);

/* Handed samples of a dispatch, which live until it returns. */
typedef void (*rocprofiler_spm_dispatch_counting_record_cb_t)(
    const rocprofiler_spm_dispatch_counting_service_data_t* dispatch_data,
    const rocprofiler_spm_counter_record_t** records,
    size_t record_count,
    rocprofiler_spm_record_flag_t flags,
    rocprofiler_user_data_t userdata,
    void* record_callback_args);

/* Tells what an agent allows. */
rocprofiler_status_t
rocprofiler_spm_query_agent_configurations(rocprofiler_agent_id_t agent_id,
                                           rocprofiler_spm_available_configurations_cb_t cb,
                                           void* user_data) ROCPROFILER_API;

/* Tells which counters of an agent can be streamed. */
rocprofiler_status_t
rocprofiler_spm_iterate_agent_supported_counters(rocprofiler_agent_id_t agent_id,
                                                 rocprofiler_available_counters_cb_t cb,
                                                 void* user_data) ROCPROFILER_API;

/* Makes a set of counters with their parameters, beginning with the set in `config_id`, if there is one. */
rocprofiler_status_t
rocprofiler_spm_create_counter_config(rocprofiler_agent_id_t agent_id,
                                      rocprofiler_counter_id_t* counters_list,
                                      size_t counters_count,
                                      rocprofiler_spm_parameters_t** parameters,
                                      size_t parameters_count,
                                      rocprofiler_counter_config_id_t* config_id) ROCPROFILER_API;

/* Ends it. */
rocprofiler_status_t rocprofiler_spm_destroy_counter_config(rocprofiler_counter_config_id_t config_id) ROCPROFILER_API;

/* Samples to a callback. */
rocprofiler_status_t
rocprofiler_spm_configure_callback_dispatch_service(rocprofiler_context_id_t context_id,
                                                    rocprofiler_spm_dispatch_counting_service_cb_t dispatch_callback,
                                                    void* dispatch_callback_args,
                                                    rocprofiler_spm_dispatch_counting_record_cb_t record_callback,
                                                    void* record_callback_args) ROCPROFILER_API;

/* Samples into a buffer. */
rocprofiler_status_t
rocprofiler_spm_configure_buffer_dispatch_service(rocprofiler_context_id_t context_id,
                                                  rocprofiler_buffer_id_t buffer_id,
                                                  rocprofiler_spm_dispatch_counting_service_cb_t callback,
                                                  void* callback_data_args) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
