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

#include <rocprofiler-sdk-rocattach/defines.h>
#include <rocprofiler-sdk-rocattach/types.h>
#include <rocprofiler-sdk-rocattach/version.h>

ROCATTACH_EXTERN_C_INIT

/* Attaches to a process and returns when its calls are being recorded. On failure the process is as it was. */
rocattach_status_t rocattach_attach(int pid) ROCATTACH_API;

/* Detaches from a process, or from all with 0, and writes the outputs: when this returns the files are complete. A process that has ended
 * meanwhile is no failure; one that was killed is, and what it recorded is written. */
rocattach_status_t rocattach_detach(int pid) ROCATTACH_API;

/* The same for a process and all of its descendants. The attach goes on after a process that fails, and the status is that of the last
 * failure. The detach is for the processes of the attach with this pid; without such an attach it is an invalid argument. */
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

ROCATTACH_EXTERN_C_FINI

#endif
