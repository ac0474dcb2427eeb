/* ROCTx under the name of its first home, for programs that include it so and link with libroctx64. */
#ifndef ROCTRACER_ROCTX_H_
#define ROCTRACER_ROCTX_H_

#include <rocprofiler-sdk-roctx/roctx.h>

ROCTX_EXTERN_C_INIT

/* The version of that first interface: 4.1. */
uint32_t roctx_version_major(void) ROCTX_API;
uint32_t roctx_version_minor(void) ROCTX_API;

ROCTX_EXTERN_C_FINI

#endif
