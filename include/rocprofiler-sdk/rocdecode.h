/* rocprofiler-sdk: what there is of rocDecode. */
#ifndef ROCPROFILER_SDK_ROCDECODE_H_
#define ROCPROFILER_SDK_ROCDECODE_H_

#include <rocprofiler-sdk/rocdecode/api_id.h>
#include <rocprofiler-sdk/rocdecode/table_id.h>
#include <rocprofiler-sdk/rocdecode/api_args.h>

#endif
