/* rocprofiler-sdk: older names of counter_config.h. */
#ifndef ROCPROFILER_SDK_DEPRECATED_PROFILE_CONFIG_H_
#define ROCPROFILER_SDK_DEPRECATED_PROFILE_CONFIG_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* See rocprofiler_create_counter_config(). */
rocprofiler_status_t
rocprofiler_create_profile_config(rocprofiler_agent_id_t agent_id,
                                  rocprofiler_counter_id_t* counters_list,
                                  size_t counters_count,
                                  rocprofiler_profile_config_id_t* config_id) ROCPROFILER_API;

/* See rocprofiler_destroy_counter_config(). */
rocprofiler_status_t rocprofiler_destroy_profile_config(rocprofiler_profile_config_id_t config_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
