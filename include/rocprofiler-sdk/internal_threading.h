/* rocprofiler-sdk: threads of the library.
 */
#ifndef ROCPROFILER_SDK_INTERNAL_THREADING_H_
#define ROCPROFILER_SDK_INTERNAL_THREADING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Told that a thread is made: which library, and the tool's word. */
typedef void (*rocprofiler_internal_thread_library_cb_t)(rocprofiler_runtime_library_t, void*);

/* Has a tool told before and after threads are made. `libs`: bits of rocprofiler_runtime_library_t. Either callback may be NULL. */
rocprofiler_status_t
rocprofiler_at_internal_thread_create(rocprofiler_internal_thread_library_cb_t precreate,
                                      rocprofiler_internal_thread_library_cb_t postcreate,
                                      int libs,
                                      void* data) ROCPROFILER_API;

/* A thread that calls the callbacks of buffers. */
typedef struct rocprofiler_callback_thread_t
{
    uint64_t handle;
} rocprofiler_callback_thread_t;

/* Makes one; only while tools initialize. */
rocprofiler_status_t rocprofiler_create_callback_thread(rocprofiler_callback_thread_t* cb_thread_id) ROCPROFILER_API;

/* Has the callbacks of a buffer called on it. */
rocprofiler_status_t
rocprofiler_assign_callback_thread(rocprofiler_buffer_id_t buffer_id,
                                   rocprofiler_callback_thread_t cb_thread_id) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
