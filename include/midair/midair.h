/* midair for C programs: attach to a running process, read its kernels, write files.
 *
 * Functions return 0, or the exit code of `midair attach` for the same failure (docs/exit-codes.md).
 * midair_error_message() then returns the reason. A null pointer where an object is needed is a
 * failure (2), not a crash. Objects are not for several threads at once. The libraries that enter the
 * process come from the installation of this library, or from the one of the program $MIDAIR.
 */
#ifndef MIDAIR_MIDAIR_H
#define MIDAIR_MIDAIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The process, what to record, and for how long. */
typedef struct midair_options midair_options;
/* A process that is being recorded. */
typedef struct midair_session midair_session;
/* A finished recording. */
typedef struct midair_recording midair_recording;

/* A kernel that ran. Times are nanoseconds of CLOCK_BOOTTIME, 0 if unknown. Later versions add members
 * at the end: `size` is the number of bytes that this library fills. */
typedef struct midair_kernel {
  size_t size;
  const char *name; /* valid during the callback */
  uint64_t start;
  uint64_t end;
  uint64_t dispatch;
  uint64_t correlation;
  uint64_t stream;
  uint32_t thread;
  uint32_t node;
  uint32_t queue;
  uint32_t workgroup[3];
  uint32_t grid[3];
} midair_kernel;

/* A return value other than 0 stops the iteration. The callback must not throw or longjmp. */
typedef int (*midair_kernel_callback)(const midair_kernel *kernel, void *data);

/* Return the reason of the last failure on this thread, and a remedy. Valid until the next failure on
 * this thread; never null. */
const char *midair_error_message(void);
const char *midair_error_remedy(void);

/* Creates options for this process. */
midair_options *midair_options_new(uint32_t pid);
void midair_options_free(midair_options *options);
/* Adds an option of `midair attach` that selects what to record, by its long name without dashes
 * ("kernel-trace"), with `count` words, which may be 0. */
int midair_options_add(midair_options *options, const char *name, const char *const *words, size_t count);
/* Ends the recording after this time. */
int midair_options_set_duration(midair_options *options, uint64_t nanoseconds);

/* Attaches. When this returns 0, the process is being recorded. On failure, *session is null. */
int midair_start(const midair_options *options, midair_session **session);
/* Detach and return the recording; midair_wait first waits until the duration is over or the process
 * exits. Both free the session, also on failure, when *recording is null. */
int midair_detach(midair_session *session, midair_recording **recording);
int midair_wait(midair_session *session, midair_recording **recording);

/* Calls `callback` for each kernel. Returns 0, or the callback's first other value. */
int midair_recording_kernels(const midair_recording *recording, midair_kernel_callback callback, void *data);
/* Writes files with the prefix `path`: csv, json, rocpd, pftrace, otf2, kineto, html. */
int midair_recording_write(const midair_recording *recording, const char *format, const char *path);
/* Returns 0 if the recording is complete, else the code of the failure that made it incomplete. */
int midair_recording_status(const midair_recording *recording);
void midair_recording_free(midair_recording *recording);

#ifdef __cplusplus
}
#endif

#endif
