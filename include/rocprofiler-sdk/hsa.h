/* rocprofiler-sdk: what there is of HSA. */
#ifndef ROCPROFILER_SDK_HSA_H_
#define ROCPROFILER_SDK_HSA_H_

#include <rocprofiler-sdk/hsa/core_api_id.h>
#include <rocprofiler-sdk/hsa/amd_ext_api_id.h>
#include <rocprofiler-sdk/hsa/image_ext_api_id.h>
#include <rocprofiler-sdk/hsa/finalize_ext_api_id.h>
#include <rocprofiler-sdk/hsa/scratch_memory_id.h>
#include <rocprofiler-sdk/hsa/scratch_memory_args.h>
#include <rocprofiler-sdk/hsa/table_id.h>
#include <rocprofiler-sdk/hsa/api_args.h>

#endif
