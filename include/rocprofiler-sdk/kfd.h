/* rocprofiler-sdk: what there is of the driver. */
#ifndef ROCPROFILER_SDK_KFD_H_
#define ROCPROFILER_SDK_KFD_H_

#include <rocprofiler-sdk/kfd/kfd_id.h>

#endif
