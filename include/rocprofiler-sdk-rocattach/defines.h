/* rocattach: macros that the other headers are written with. */
#ifndef ROCPROFILER_SDK_ROCATTACH_DEFINES_H_
#define ROCPROFILER_SDK_ROCATTACH_DEFINES_H_

#define ROCPROFILER_SDK_ROCATTACH_VERSION_0_0

#if !defined(ROCATTACH_ATTRIBUTE)
#    define ROCATTACH_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#endif
#if !defined(ROCATTACH_PUBLIC_API)
#    define ROCATTACH_PUBLIC_API ROCATTACH_ATTRIBUTE(visibility("default"))
#endif
#if !defined(ROCATTACH_HIDDEN_API)
#    define ROCATTACH_HIDDEN_API ROCATTACH_ATTRIBUTE(visibility("hidden"))
#endif
#if !defined(ROCATTACH_EXPORT)
#    define ROCATTACH_EXPORT ROCATTACH_PUBLIC_API
#endif
#if !defined(ROCATTACH_IMPORT)
#    define ROCATTACH_IMPORT
#endif
#if !defined(ROCATTACH_API)
#    define ROCATTACH_API ROCATTACH_PUBLIC_API
#endif
#if !defined(ROCATTACH_NONNULL)
#    define ROCATTACH_NONNULL(...) ROCATTACH_ATTRIBUTE(nonnull(__VA_ARGS__))
#endif

#ifdef __cplusplus
#    define ROCATTACH_EXTERN_C_INIT extern "C" {
#    define ROCATTACH_EXTERN_C_FINI }
#else
#    define ROCATTACH_EXTERN_C_INIT
#    define ROCATTACH_EXTERN_C_FINI
#endif

#define ROCATTACH_COMPUTE_VERSION(major, minor, patch) ((10000 * (major)) + (100 * (minor)) + (patch))

#endif
