/* rocprofiler-sdk-rocpd: everything. */
#ifndef ROCPROFILER_SDK_ROCPD_ROCPD_H_
#define ROCPROFILER_SDK_ROCPD_ROCPD_H_

#include <rocprofiler-sdk-rocpd/defines.h>
#include <rocprofiler-sdk-rocpd/sql.h>
#include <rocprofiler-sdk-rocpd/types.h>
#include <rocprofiler-sdk-rocpd/version.h>

ROCPD_EXTERN_C_INIT

/* The version of the library. Each pointer may be NULL. */
rocpd_status_t rocpd_get_version(uint32_t* major, uint32_t* minor, uint32_t* patch) ROCPD_API;

/* The same in one struct. */
rocpd_status_t rocpd_get_version_triplet(rocpd_version_triplet_t* info) ROCPD_API;

/* The name of a status, or NULL. */
const char* rocpd_get_status_name(rocpd_status_t status) ROCPD_API;

/* What it means, or NULL. */
const char* rocpd_get_status_string(rocpd_status_t status) ROCPD_API;

ROCPD_EXTERN_C_FINI

#endif
