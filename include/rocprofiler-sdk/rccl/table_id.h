/* rocprofiler-sdk: the API tables of RCCL.
 */
#ifndef ROCPROFILER_SDK_RCCL_TABLE_ID_H_
#define ROCPROFILER_SDK_RCCL_TABLE_ID_H_

#include <rocprofiler-sdk/defines.h>

ROCPROFILER_EXTERN_C_INIT

typedef enum rocprofiler_rccl_table_id_t
{
    ROCPROFILER_RCCL_TABLE_ID_NONE = -1,
    ROCPROFILER_RCCL_TABLE_ID = 0,
    ROCPROFILER_RCCL_TABLE_ID_LAST = 1
} rocprofiler_rccl_table_id_t;

ROCPROFILER_EXTERN_C_FINI

#endif
