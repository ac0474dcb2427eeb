/* rocprofiler-sdk: what there is of RCCL. */
#ifndef ROCPROFILER_SDK_RCCL_H_
#define ROCPROFILER_SDK_RCCL_H_

#include <rocprofiler-sdk/rccl/api_id.h>
#include <rocprofiler-sdk/rccl/table_id.h>
#include <rocprofiler-sdk/rccl/api_args.h>

#endif
