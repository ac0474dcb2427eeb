/* rocprofiler-sdk: what there is of HIP. */
#ifndef ROCPROFILER_SDK_HIP_H_
#define ROCPROFILER_SDK_HIP_H_

#include <rocprofiler-sdk/hip/api_id.h>
#include <rocprofiler-sdk/hip/table_id.h>
#include <rocprofiler-sdk/hip/api_args.h>

#endif
