/* rocprofiler-sdk-rocpd: the version of the interface that these headers describe. */
#ifndef ROCPROFILER_SDK_ROCPD_VERSION_H_
#define ROCPROFILER_SDK_ROCPD_VERSION_H_

#include <rocprofiler-sdk-rocpd/defines.h>

#define ROCPD_VERSION_MAJOR 1
#define ROCPD_VERSION_MINOR 2
#define ROCPD_VERSION_PATCH 1
#define ROCPD_VERSION_STRING "1.2.1"
#define ROCPD_SOVERSION 1
#define ROCPD_VERSION ROCPD_COMPUTE_VERSION(ROCPD_VERSION_MAJOR, ROCPD_VERSION_MINOR, ROCPD_VERSION_PATCH)

#endif
