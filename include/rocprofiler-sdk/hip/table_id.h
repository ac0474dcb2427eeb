/* rocprofiler-sdk: the API tables of HIP.
 */
#ifndef ROCPROFILER_SDK_HIP_TABLE_ID_H_
#define ROCPROFILER_SDK_HIP_TABLE_ID_H_

#include <rocprofiler-sdk/defines.h>

ROCPROFILER_EXTERN_C_INIT

typedef enum rocprofiler_hip_table_id_t
{
    ROCPROFILER_HIP_TABLE_ID_NONE = -1,
    ROCPROFILER_HIP_TABLE_ID_Compiler = 0,
    ROCPROFILER_HIP_TABLE_ID_Runtime = 1,
    ROCPROFILER_HIP_TABLE_ID_LAST = 2
} rocprofiler_hip_table_id_t;

ROCPROFILER_EXTERN_C_FINI

#endif
