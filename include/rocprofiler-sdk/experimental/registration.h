/* rocprofiler-sdk: tools that are attached, as newer headers of AMD's declare them; registration.h has the same.
 */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_REGISTRATION_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_REGISTRATION_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/registration.h>
#include <stddef.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* With which a tool ends its session. */
typedef void (*rocprofiler_client_detach_t)(rocprofiler_client_id_t);

/* A library that has registered its tables. */
typedef struct rocprofiler_runtime_registration_info_t
{
    size_t size;               /* bytes of this struct */
    const char* common_name;   /* such as hip */
    uint32_t lib_version;      /* 10000 major + 100 minor + patch */
    uint64_t api_table_length; /* how many tables */
} rocprofiler_runtime_registration_info_t;

/* Told of a library; `info` lives until it returns. Not 0 ends the iteration. */
typedef int (*rocprofiler_runtime_registration_info_cb_t)(rocprofiler_runtime_registration_info_t* info, void* data);

/* Tells of each library that has registered. Not served: answers ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED. */
rocprofiler_status_t
rocprofiler_iterate_runtime_registration_info(rocprofiler_runtime_registration_info_cb_t callback,
                                              void* data) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
