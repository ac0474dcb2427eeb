/* rocprofiler-sdk: the API tables of rocDecode.
 */
#ifndef ROCPROFILER_SDK_ROCDECODE_TABLE_ID_H_
#define ROCPROFILER_SDK_ROCDECODE_TABLE_ID_H_

#include <rocprofiler-sdk/defines.h>

ROCPROFILER_EXTERN_C_INIT

typedef enum rocprofiler_rocdecode_table_id_t
{
    ROCPROFILER_ROCDECODE_TABLE_ID_NONE = -1,
    ROCPROFILER_ROCDECODE_TABLE_ID_CORE = 0,
    ROCPROFILER_ROCDECODE_TABLE_ID_LAST = 1
} rocprofiler_rocdecode_table_id_t;

ROCPROFILER_EXTERN_C_FINI

#endif
