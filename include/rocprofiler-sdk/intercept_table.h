/* rocprofiler-sdk: being told of API tables.
 */
#ifndef ROCPROFILER_SDK_INTERCEPT_TABLE_H_
#define ROCPROFILER_SDK_INTERCEPT_TABLE_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Told of the tables of a library. */
typedef void (*rocprofiler_intercept_library_cb_t)(rocprofiler_intercept_table_t type,
                                                   uint64_t lib_version,
                                                   uint64_t lib_instance,
                                                   void** tables,
                                                   uint64_t num_tables,
                                                   void* user_data);

/* Has a tool given tables as runtimes register them; only while the tool is configured. */
rocprofiler_status_t
rocprofiler_at_intercept_table_registration(rocprofiler_intercept_library_cb_t callback,
                                            int libs,
                                            void* data) ROCPROFILER_API;

/* The name of a table; lives for ever. `name_len` may be NULL. */
rocprofiler_status_t
rocprofiler_query_intercept_table_name(rocprofiler_intercept_table_t kind,
                                       const char** name,
                                       uint64_t* name_len) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
