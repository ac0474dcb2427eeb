/* A stand-in attach library: writes what it is asked into the file FAKE_LOG, answers FAKE_ATTACH and FAKE_DETACH.
 * FIRST_GENERATION: only the names without a status. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const char* env(const char* name) { return getenv(name) ? getenv(name) : "-"; }

static int note(const char* what, long pid)
{
    FILE* log = fopen(env("FAKE_LOG"), "a");
    if(!log) return 99;
    fprintf(log, "%s %ld tools=%s kernels=%s output=%s\n", what, pid, env("ROCPROF_ATTACH_TOOL_LIBRARY"), env("ROCPROF_KERNEL_TRACE"),
            env("ROCPROF_OUTPUT_FORMAT"));
    fclose(log);
    return 0;
}

#ifdef FIRST_GENERATION
void attach(uint32_t pid) { note("attach", pid); }
void detach(void) { note("detach", 0); }
#else
int rocattach_attach(int pid) { return note("rocattach_attach", pid) + atoi(env("FAKE_ATTACH")); }
int rocattach_detach(int pid) { return note("rocattach_detach", pid) + atoi(env("FAKE_DETACH")); }
void attach(uint32_t pid) { note("attach", pid); }
void detach(void) { note("detach", 0); }
#endif
