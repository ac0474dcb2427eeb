/* rocprofiler-sdk: what there is of rocJPEG. */
#ifndef ROCPROFILER_SDK_ROCJPEG_H_
#define ROCPROFILER_SDK_ROCJPEG_H_

#include <rocprofiler-sdk/rocjpeg/api_id.h>
#include <rocprofiler-sdk/rocjpeg/table_id.h>
#include <rocprofiler-sdk/rocjpeg/api_args.h>

#endif
