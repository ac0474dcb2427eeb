/* rocprofiler-sdk: what there is of markers. */
#ifndef ROCPROFILER_SDK_MARKER_H_
#define ROCPROFILER_SDK_MARKER_H_

#include <rocprofiler-sdk/marker/api_id.h>
#include <rocprofiler-sdk/marker/table_id.h>
#include <rocprofiler-sdk/marker/api_args.h>

#endif
