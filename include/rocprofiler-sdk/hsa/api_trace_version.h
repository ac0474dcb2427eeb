/* rocprofiler-sdk: HSA's tables of functions, for tools that are told of them. They are HSA's own: C has only their versions, since
 * the header of the tables is C++, and without HSA's headers there is nothing.
 */
#ifndef ROCPROFILER_SDK_HSA_API_TRACE_VERSION_H_
#define ROCPROFILER_SDK_HSA_API_TRACE_VERSION_H_

#include <rocprofiler-sdk/version.h>

#if defined(__has_include)
#    if defined(__cplusplus) && __has_include(<hsa/hsa_api_trace.h>)
/* Otherwise it looks for the other headers of HSA where they lie when the runtime itself is built. */
#        if !defined(AMD_INTERNAL_BUILD)
#            define AMD_INTERNAL_BUILD
#            define ROCPROFILER_DEFINED_AMD_INTERNAL_BUILD 1
#        endif
#        include <hsa/hsa_api_trace.h>
#        if defined(ROCPROFILER_DEFINED_AMD_INTERNAL_BUILD)
#            undef AMD_INTERNAL_BUILD
#            undef ROCPROFILER_DEFINED_AMD_INTERNAL_BUILD
#        endif
#    elif __has_include(<hsa/hsa_api_trace_version.h>)
#        include <hsa/hsa_api_trace_version.h>
#    endif
#endif

#endif
