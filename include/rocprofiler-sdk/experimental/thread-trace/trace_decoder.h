/* rocprofiler-sdk: reading the bytes of a thread trace by AMD's trace decoder, a library of its own. midair loads
 * none: the answer is the status of the first thing that lacks, in the arguments or on the machine, or NULL.
 */
#ifndef ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_TRACE_DECODER_H_
#define ROCPROFILER_SDK_EXPERIMENTAL_THREAD_TRACE_TRACE_DECODER_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/experimental/thread-trace/trace_decoder_types.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* A decoder with the code objects that it knows. */
typedef struct rocprofiler_thread_trace_decoder_id_t
{
    uint64_t handle;
} rocprofiler_thread_trace_decoder_id_t;

/* Makes one, with the library in the directory `path`. ROCPROFILER_STATUS_ERROR_NOT_AVAILABLE: it is not there;
 * ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI: it is of another version. */
rocprofiler_status_t
rocprofiler_thread_trace_decoder_create(rocprofiler_thread_trace_decoder_id_t* handle, const char* path) ROCPROFILER_API;

/* Ends it. */
void rocprofiler_thread_trace_decoder_destroy(rocprofiler_thread_trace_decoder_id_t handle) ROCPROFILER_API;

/* Gives it a code object: its id, where it was loaded, and its bytes. Of others there will be no instructions. */
rocprofiler_status_t
rocprofiler_thread_trace_decoder_codeobj_load(rocprofiler_thread_trace_decoder_id_t handle,
                                              uint64_t load_id,
                                              uint64_t load_addr,
                                              uint64_t load_size,
                                              const void* data,
                                              uint64_t size) ROCPROFILER_API;

/* Takes it away again. */
rocprofiler_status_t
rocprofiler_thread_trace_decoder_codeobj_unload(rocprofiler_thread_trace_decoder_id_t handle, uint64_t load_id) ROCPROFILER_API;

/* Handed events of one type: an array of the struct of that type. They live until it returns. */
typedef void (*rocprofiler_thread_trace_decoder_callback_t)(rocprofiler_thread_trace_decoder_record_type_t record_type_id,
                                                            void* trace_events,
                                                            uint64_t trace_size,
                                                            void* userdata);

/* Reads the bytes of a shader engine. */
rocprofiler_status_t
rocprofiler_trace_decode(rocprofiler_thread_trace_decoder_id_t handle,
                         rocprofiler_thread_trace_decoder_callback_t callback,
                         void* data,
                         uint64_t size,
                         void* userdata) ROCPROFILER_API;

/* What an INFO event means, in words. */
const char*
rocprofiler_thread_trace_decoder_info_string(rocprofiler_thread_trace_decoder_id_t handle,
                                             rocprofiler_thread_trace_decoder_info_t info) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
