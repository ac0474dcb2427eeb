/* rocprofiler-sdk: operations of all tables of HSA. */
#ifndef ROCPROFILER_SDK_HSA_API_ID_H_
#define ROCPROFILER_SDK_HSA_API_ID_H_

#include <rocprofiler-sdk/hsa/amd_ext_api_id.h>
#include <rocprofiler-sdk/hsa/core_api_id.h>
#include <rocprofiler-sdk/hsa/finalize_ext_api_id.h>
#include <rocprofiler-sdk/hsa/image_ext_api_id.h>

#endif
