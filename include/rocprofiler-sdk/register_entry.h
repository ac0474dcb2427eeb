/* rocprofiler-sdk: what registration libraries call in the library. No business of tools: AMD's packages do not declare these, and
 * find them by name.
 */
#ifndef ROCPROFILER_SDK_REGISTER_ENTRY_H_
#define ROCPROFILER_SDK_REGISTER_ENTRY_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Hands over a runtime's tables, under the names of rocprofiler_register_library_api_table(). 0 is success. */
int
rocprofiler_set_api_table(const char* name, uint64_t lib_version, uint64_t lib_instance, void** tables, uint64_t num_tables)
    ROCPROFILER_API;

/* Loads tools for an attach: a list with colons. The attach library's own name means the default tool. */
rocprofiler_status_t rocprofiler_load_attachment_tool(const char* path) ROCPROFILER_API;

/* Attaches the tools that are loaded, and detaches them. */
rocprofiler_status_t rocprofiler_attach(void) ROCPROFILER_API;
rocprofiler_status_t rocprofiler_detach(void) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
