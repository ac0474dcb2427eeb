/* rocattach: attach a profiler to a process that is already running, by its pid.
 *
 * What is recorded and where it is written is taken from the caller's environment: every variable whose name begins with ROCP
 * (ROCPROF_KERNEL_TRACE=1, ROCPROF_OUTPUT_PATH=..., ...), as it is when the attach is called. All functions may be called from any
 * thread; two processes may be attached to side by side. Failures also print one line, "rocattach: error: ...", on standard error.
 *
 * Link with -lrocprofiler-sdk-rocattach, or load librocprofiler-sdk-rocattach.so.1 with dlopen().
 */
#ifndef ROCPROFILER_SDK_ROCATTACH_ROCATTACH_H_
#define ROCPROFILER_SDK_ROCATTACH_ROCATTACH_H_

#include <stdint.h>

#define ROCATTACH_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rocattach_status_t
{
    ROCATTACH_STATUS_SUCCESS                                    = 0,
    ROCATTACH_STATUS_ERROR                                      = 1, /* none of the below; standard error says what */
    ROCATTACH_STATUS_ERROR_INVALID_ARGUMENT                     = 2, /* no pid, no session with it, or one already */
    ROCATTACH_STATUS_ERROR_NOT_SUPPORTED                        = 3,
    ROCATTACH_STATUS_ERROR_PTRACE_ERROR                         = 4, /* the process could not be entered */
    ROCATTACH_STATUS_ERROR_PTRACE_OPERATION_NOT_PERMITTED       = 5,
    ROCATTACH_STATUS_ERROR_PTRACE_PROCESS_NOT_FOUND             = 6,
    ROCATTACH_STATUS_LAST                                       = 7
} rocattach_status_t;

typedef struct rocattach_version_triplet_t
{
    uint32_t major;
    uint32_t minor;
    uint32_t patch;
} rocattach_version_triplet_t;

/* Attaches to a process and returns when its calls are being recorded. On failure the process is as it was. */
rocattach_status_t rocattach_attach(int pid) ROCATTACH_API;

/* Detaches from a process, or from all with 0, and writes the outputs: when this returns the files are complete. A process that has ended
 * meanwhile is no failure; one that was killed is, and what it recorded is written. */
rocattach_status_t rocattach_detach(int pid) ROCATTACH_API;

/* A process and its children. Answer ROCATTACH_STATUS_ERROR_NOT_SUPPORTED for now. */
rocattach_status_t rocattach_attach_tree(int pid) ROCATTACH_API;
rocattach_status_t rocattach_detach_tree(int pid) ROCATTACH_API;

/* The version of this interface; each pointer may be NULL. */
rocattach_status_t rocattach_get_version(uint32_t* major, uint32_t* minor, uint32_t* patch) ROCATTACH_API;

/* The same in one struct, which must not be NULL. */
rocattach_status_t rocattach_get_version_triplet(rocattach_version_triplet_t* info) ROCATTACH_API;

/* The enumerator's name, or a sentence about it. NULL for a number that is no status. */
const char* rocattach_get_status_name(rocattach_status_t status) ROCATTACH_API;
const char* rocattach_get_status_string(rocattach_status_t status) ROCATTACH_API;

/* The first generation of names: no status (failures are on standard error), and a detach that takes whatever is attached. */
void attach(uint32_t pid) ROCATTACH_API;
void detach(void) ROCATTACH_API;

#ifdef __cplusplus
}
#endif

#endif
