/* ROCTx: macros that the other headers are written with. */
#ifndef ROCPROFILER_SDK_ROCTX_DEFINES_H_
#define ROCPROFILER_SDK_ROCTX_DEFINES_H_

#if !defined(ROCTX_PUBLIC_API)
#    define ROCTX_PUBLIC_API __attribute__((visibility("default")))
#endif
#if !defined(ROCTX_API)
#    define ROCTX_API
#endif

#ifdef __cplusplus
#    define ROCTX_EXTERN_C_INIT extern "C" {
#    define ROCTX_EXTERN_C_FINI }
#else
#    define ROCTX_EXTERN_C_INIT
#    define ROCTX_EXTERN_C_FINI
#endif

#endif
