/* rocprofiler-sdk: operations of both tables of HIP. */
#ifndef ROCPROFILER_SDK_HIP_API_ID_H_
#define ROCPROFILER_SDK_HIP_API_ID_H_

#include <rocprofiler-sdk/hip/compiler_api_id.h>
#include <rocprofiler-sdk/hip/runtime_api_id.h>

#endif
