/* rocprofiler-sdk-rocpd: what functions answer. */
#ifndef ROCPROFILER_SDK_ROCPD_TYPES_H_
#define ROCPROFILER_SDK_ROCPD_TYPES_H_

#include <rocprofiler-sdk-rocpd/defines.h>
#include <stdint.h>

/* rocpd_get_status_string() has words for each. */
typedef enum rocpd_status_t
{
    ROCPD_STATUS_SUCCESS = 0,
    ROCPD_STATUS_ERROR = 1,
    ROCPD_STATUS_ERROR_INVALID_ARGUMENT = 2,
    ROCPD_STATUS_ERROR_SQL_ERROR = 3,
    ROCPD_STATUS_ERROR_SQL_INVALID_ENGINE = 4,
    ROCPD_STATUS_ERROR_SQL_INVALID_SCHEMA_KIND = 5,
    ROCPD_STATUS_ERROR_SQL_SCHEMA_NOT_FOUND = 6,
    ROCPD_STATUS_ERROR_SQL_SCHEMA_PERMISSION_DENIED = 7,
    ROCPD_STATUS_LAST = 8
} rocpd_status_t;

/* A version in three numbers. */
typedef struct rocpd_version_triplet_t
{
    uint32_t major;
    uint32_t minor;
    uint32_t patch;
} rocpd_version_triplet_t;

#endif
