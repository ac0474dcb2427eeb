/* rocprofiler-sdk: how a tool comes to work. It exports rocprofiler_configure(), and rocprofiler_configure_attach() if it can be attached
 * to a process that is already running. Those are declared here for the tool to define; the library does not have them.
 */
#ifndef ROCPROFILER_SDK_REGISTRATION_H_
#define ROCPROFILER_SDK_REGISTRATION_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <stddef.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* Who a tool is. */
typedef struct rocprofiler_client_id_t
{
    size_t size;           /* bytes of this struct */
    const char* name;      /* the tool sets it; must live as long as the process */
    const uint32_t handle; /* the library sets it */
} rocprofiler_client_id_t;

/* With which a tool ends itself: its contexts are stopped and its `finalize` is called. */
typedef void (*rocprofiler_client_finalize_t)(rocprofiler_client_id_t);

/* The tool makes its contexts and buffers here and nowhere else. Not 0: the tool is left out. */
typedef int (*rocprofiler_tool_initialize_t)(rocprofiler_client_finalize_t finalize_func, void* tool_data);

/* The tool's last call: no records come any more. */
typedef void (*rocprofiler_tool_finalize_t)(void* tool_data);

/* What a tool answers to rocprofiler_configure(). Copied at once. Either function may be NULL. */
typedef struct rocprofiler_tool_configure_result_t
{
    size_t size;     /* bytes of this struct */
    rocprofiler_tool_initialize_t initialize;
    rocprofiler_tool_finalize_t finalize;
    void* tool_data; /* handed to both */
} rocprofiler_tool_configure_result_t;

/* Stores 0: tools have not been initialized, 1: they have, -1: they are at it. */
rocprofiler_status_t rocprofiler_is_initialized(int* status) ROCPROFILER_API;

/* Stores 1 after the end of all tools, else 0. */
rocprofiler_status_t rocprofiler_is_finalized(int* status) ROCPROFILER_API;

/* Exported by a tool. `version` is that of the library, 10000 major + 100 minor + patch; `priority` counts the tools from 0.
 * NULL: the tool does not want to. */
rocprofiler_tool_configure_result_t*
rocprofiler_configure(uint32_t version,
                      const char* runtime_version,
                      uint32_t priority,
                      rocprofiler_client_id_t* client_id) ROCPROFILER_PUBLIC_API;

typedef rocprofiler_tool_configure_result_t* (*rocprofiler_configure_func_t)(uint32_t version,
                                                                             const char* runtime_version,
                                                                             uint32_t priority,
                                                                             rocprofiler_client_id_t* client_id);

/* Makes the calling program a tool without an exported function. ROCPROFILER_STATUS_ERROR_CONFIGURATION_LOCKED: too late. */
rocprofiler_status_t rocprofiler_force_configure(rocprofiler_configure_func_t configure_func) ROCPROFILER_API;

/* Called at each attach, with the tool's contexts: it starts those that it wants. `detach_func` may be NULL. Not 0: the attach fails. */
typedef int (*rocprofiler_tool_attach_t)(rocprofiler_client_finalize_t detach_func,
                                         rocprofiler_context_id_t* context_ids,
                                         uint64_t context_ids_count,
                                         void* tool_data);

/* Called at each detach, when the contexts have been stopped and all records have been handed over. */
typedef void (*rocprofiler_tool_detach_t)(void* tool_data);

/* What a tool answers to rocprofiler_configure_attach(). Copied at once. */
typedef struct rocprofiler_tool_configure_attach_result_t
{
    size_t size; /* bytes of this struct */
    rocprofiler_tool_attach_t tool_attach;
    rocprofiler_tool_detach_t tool_detach;
    void* tool_data; /* handed to both */
} rocprofiler_tool_configure_attach_result_t;

/* Exported by a tool that can be attached. Called once, right after rocprofiler_configure(), with the same arguments. */
rocprofiler_tool_configure_attach_result_t*
rocprofiler_configure_attach(uint32_t version, const char* runtime_version, uint32_t priority, rocprofiler_client_id_t* client_id)
    ROCPROFILER_PUBLIC_API;

typedef rocprofiler_tool_configure_attach_result_t* (*rocprofiler_configure_attach_func_t)(uint32_t version,
                                                                                          const char* runtime_version,
                                                                                          uint32_t priority,
                                                                                          rocprofiler_client_id_t* client_id);

/* Called at each attach but the first. */
typedef void (*rocprofiler_tool_reattach_t)(void* tool_data);

/* The first generation of the same (ROCm 7.1): what rocprofiler_configure_experimental() answers. */
typedef struct rocprofiler_tool_configure_result_experimental_t
{
    size_t size; /* bytes of this struct */
    rocprofiler_tool_initialize_t initialize;
    rocprofiler_tool_finalize_t finalize;
    void* tool_data; /* handed to all */
    rocprofiler_tool_reattach_t tool_reattach;
    rocprofiler_tool_detach_t tool_detach;
} rocprofiler_tool_configure_result_experimental_t;

/* Exported by a tool of that generation, in place of the two functions above. */
rocprofiler_tool_configure_result_experimental_t*
rocprofiler_configure_experimental(uint32_t version,
                                   const char* runtime_version,
                                   uint32_t priority,
                                   rocprofiler_client_id_t* client_id) ROCPROFILER_PUBLIC_API;

/* 1 inside the `initialize` of a tool that is being attached, else 0. */
int rocprofiler_is_current_client_attachment(void) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
