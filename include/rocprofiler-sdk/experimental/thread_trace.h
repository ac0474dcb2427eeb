/* rocprofiler-sdk: thread traces, which the GPU writes itself. Needs hardware, AMD's aqlprofile and its trace decoder. */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_H_

#include <rocprofiler-sdk/experimental/thread-trace/agent.h>
#include <rocprofiler-sdk/experimental/thread-trace/core.h>
#include <rocprofiler-sdk/experimental/thread-trace/dispatch.h>
#include <rocprofiler-sdk/experimental/thread-trace/trace_decoder.h>
#include <rocprofiler-sdk/experimental/thread-trace/trace_decoder_types.h>

#endif
