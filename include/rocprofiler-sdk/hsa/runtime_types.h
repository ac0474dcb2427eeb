/* rocprofiler-sdk: the two types of HSA that are in structs of ours. HSA's own headers have them where they are installed; of
 * those, one may be there without the other.
 */
#ifndef ROCPROFILER_SDK_HSA_RUNTIME_TYPES_H_
#define ROCPROFILER_SDK_HSA_RUNTIME_TYPES_H_

#include <stdint.h>

#if defined(__has_include)
#    if __has_include(<hsa/hsa.h>)
#        define ROCPROFILER_HAVE_HSA_AGENT 1
#    endif
#    if __has_include(<hsa/hsa_amd_tool.h>)
#        define ROCPROFILER_HAVE_HSA_TOOL_EVENTS 1
#    endif
#endif

#if defined(ROCPROFILER_HAVE_HSA_AGENT)
#    include <hsa/hsa.h>
#else
typedef struct hsa_agent_s
{
    uint64_t handle;
} hsa_agent_t;
#endif

#if defined(ROCPROFILER_HAVE_HSA_TOOL_EVENTS)
#    include <hsa/hsa_amd_tool.h>
#else
typedef enum
{
    HSA_AMD_TOOL_EVENT_MIN = 0,
    HSA_AMD_TOOL_EVENT_SCRATCH_ALLOC_START,
    HSA_AMD_TOOL_EVENT_SCRATCH_ALLOC_END,
    HSA_AMD_TOOL_EVENT_SCRATCH_FREE_START,
    HSA_AMD_TOOL_EVENT_SCRATCH_FREE_END,
    HSA_AMD_TOOL_EVENT_SCRATCH_ASYNC_RECLAIM_START,
    HSA_AMD_TOOL_EVENT_SCRATCH_ASYNC_RECLAIM_END,
    HSA_AMD_TOOL_EVENT_MAX
} hsa_amd_tool_event_kind_t;
#endif

#endif
