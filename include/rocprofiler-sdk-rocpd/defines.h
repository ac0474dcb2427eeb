/* rocprofiler-sdk-rocpd: macros that the other headers are written with. */
#ifndef ROCPROFILER_SDK_ROCPD_DEFINES_H_
#define ROCPROFILER_SDK_ROCPD_DEFINES_H_

#define ROCPD_ATTRIBUTE(...) __attribute__((__VA_ARGS__))
#define ROCPD_PUBLIC_API ROCPD_ATTRIBUTE(visibility("default"))
#define ROCPD_API

/* AMD's headers mark names that may change, and warn of them on demand. Here it is only a mark. */
#define ROCPD_EXPERIMENTAL

#ifdef __cplusplus
#    define ROCPD_EXTERN_C_INIT extern "C" {
#    define ROCPD_EXTERN_C_FINI }
#else
#    define ROCPD_EXTERN_C_INIT
#    define ROCPD_EXTERN_C_FINI
#endif

#define ROCPD_COMPUTE_VERSION(major, minor, patch) ((10000 * (major)) + (100 * (minor)) + (patch))

#endif
