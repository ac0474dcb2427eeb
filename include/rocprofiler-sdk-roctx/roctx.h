/* ROCTx: a program says what it is doing: marks, ranges, names.
 *
 * Cheap when nobody looks, so calls may stay in. Texts are copied while the call lasts, by whoever looks. Link with
 * -lrocprofiler-sdk-roctx.
 */
#ifndef ROCPROFILER_SDK_ROCTX_ROCTX_H_
#define ROCPROFILER_SDK_ROCTX_ROCTX_H_

#include <rocprofiler-sdk-roctx/defines.h>
#include <rocprofiler-sdk-roctx/types.h>
#include <rocprofiler-sdk-roctx/version.h>

ROCTX_EXTERN_C_INIT

/* Named here only. */
struct hsa_agent_s;
struct ihipStream_t;

/* A point in time. */
void roctxMarkA(const char* message) ROCTX_API;
#define roctxMark(message) roctxMarkA(message)

/* Begins a range inside those that this thread is in. The depth before it: 0 for the outermost; below 0 on failure. */
int roctxRangePushA(const char* message) ROCTX_API;
#define roctxRangePush(message) roctxRangePushA(message)

/* Ends this thread's innermost range. The depth after it; below 0 if there is none. */
int roctxRangePop(void) ROCTX_API;

/* Begins a range that any thread may end. */
roctx_range_id_t roctxRangeStartA(const char* message) ROCTX_API;
#define roctxRangeStart(message) roctxRangeStartA(message)

/* Ends it. */
void roctxRangeStop(roctx_range_id_t id) ROCTX_API;

/* Asks profilers to stop recording a thread (0: all of them), and to go on. 0 is success. A wish: profilers may disregard it. */
int roctxProfilerPause(roctx_thread_id_t tid) ROCTX_API;
int roctxProfilerResume(roctx_thread_id_t tid) ROCTX_API;

/* Names for the calling thread, an agent, a device and a stream. 0 is success. */
int roctxNameOsThread(const char* name) ROCTX_API;
int roctxNameHsaAgent(const char* name, const struct hsa_agent_s* agent) ROCTX_API;
int roctxNameHipDevice(const char* name, int device_id) ROCTX_API;
int roctxNameHipStream(const char* name, const struct ihipStream_t* stream) ROCTX_API;

/* The calling thread, as roctxProfilerPause() takes it. 0 is success. */
int roctxGetThreadId(roctx_thread_id_t* tid) ROCTX_API;

ROCTX_EXTERN_C_FINI

#endif
