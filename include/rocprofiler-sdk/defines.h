/* rocprofiler-sdk: macros that the other headers are written with. */
#ifndef ROCPROFILER_SDK_DEFINES_H_
#define ROCPROFILER_SDK_DEFINES_H_

#include <stdint.h>

#if !defined(ROCPROFILER_ATTRIBUTE)
#    define ROCPROFILER_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#endif

/* On what a tool exports for the library to find. */
#if !defined(ROCPROFILER_PUBLIC_API)
#    define ROCPROFILER_PUBLIC_API ROCPROFILER_ATTRIBUTE(visibility("default"))
#endif
#if !defined(ROCPROFILER_HIDDEN_API)
#    define ROCPROFILER_HIDDEN_API ROCPROFILER_ATTRIBUTE(visibility("hidden"))
#endif
#define ROCPROFILER_EXPORT ROCPROFILER_PUBLIC_API
#define ROCPROFILER_IMPORT

/* On what the library exports. */
#if !defined(ROCPROFILER_API)
#    define ROCPROFILER_API ROCPROFILER_IMPORT
#endif

#define ROCPROFILER_NONNULL(...) ROCPROFILER_ATTRIBUTE(nonnull(__VA_ARGS__))

#ifdef __cplusplus
#    define ROCPROFILER_EXTERN_C_INIT extern "C" {
#    define ROCPROFILER_EXTERN_C_FINI }
#    define ROCPROFILER_CXX_CODE(...) __VA_ARGS__
#    define ROCPROFILER_HANDLE_LITERAL(type, value) (type{value})
#    define ROCPROFILER_UINT64_C(value) uint64_t(value)
#else
#    define ROCPROFILER_EXTERN_C_INIT
#    define ROCPROFILER_EXTERN_C_FINI
#    define ROCPROFILER_CXX_CODE(...)
#    define ROCPROFILER_HANDLE_LITERAL(type, value) ((type){value})
#    define ROCPROFILER_UINT64_C(value) UINT64_C(value)
#endif

/* A version as one number: two decimal digits each for minor and patch. */
#define ROCPROFILER_SDK_COMPUTE_VERSION(major, minor, patch) ((10000 * (major)) + (100 * (minor)) + (patch))

/* AMD's headers mark names that may change, and warn of them on demand. Here they are only marks. */
#define ROCPROFILER_SDK_EXPERIMENTAL
#define ROCPROFILER_SDK_DEPRECATED(...)

#endif
