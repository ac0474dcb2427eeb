/* rocprofiler-sdk: buffers that records are collected in.
 */
#ifndef ROCPROFILER_SDK_BUFFER_H_
#define ROCPROFILER_SDK_BUFFER_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <stddef.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* Handed what was in a buffer, in the order of recording. The records live until it returns. `drop_count`: records that found no
 * room. */
typedef void (*rocprofiler_buffer_tracing_cb_t)(rocprofiler_context_id_t context,
                                                rocprofiler_buffer_id_t buffer_id,
                                                rocprofiler_record_header_t** headers,
                                                size_t num_headers,
                                                void* data,
                                                uint64_t drop_count);

/* Makes a buffer of `size` bytes for a context; only while tools initialize. Once `watermark` bytes are in it, the callback is called: by
 * a thread of the library, or by the callback thread that was assigned; when the tool flushes, without such a thread, by the caller. */
rocprofiler_status_t
rocprofiler_create_buffer(rocprofiler_context_id_t context,
                          size_t size,
                          size_t watermark,
                          rocprofiler_buffer_policy_t policy,
                          rocprofiler_buffer_tracing_cb_t callback,
                          void* callback_data,
                          rocprofiler_buffer_id_t* buffer_id) ROCPROFILER_API;

/* Removes a buffer, with what is in it. ROCPROFILER_STATUS_ERROR_BUFFER_BUSY: its callback runs. */
rocprofiler_status_t rocprofiler_destroy_buffer(rocprofiler_buffer_id_t buffer_id) ROCPROFILER_API;

/* Has what is in a buffer handed over, and returns when that is done. ROCPROFILER_STATUS_ERROR_BUFFER_BUSY: somebody else is
 * doing so. */
rocprofiler_status_t rocprofiler_flush_buffer(rocprofiler_buffer_id_t buffer_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
