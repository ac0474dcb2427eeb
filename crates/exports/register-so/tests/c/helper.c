/* A stand-in for AMD's attach helper. NEWER: starts with any runtime; else only with HSA's table. It brings a thread of the name that
 * injectors look for, and registers "rocattach" through the function that it is given. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef int functor_t(const char*, void*, uint32_t, void**, uint64_t, uint64_t*);

static uint64_t table[12] = {96};

static void* wait_here(void* nothing)
{
    for(;;) pause();
    return nothing;
}

static int begin(functor_t* functor)
{
    pthread_t thread;
    pthread_create(&thread, NULL, wait_here, NULL);
    pthread_setname_np(thread, "rocp-bg-attach");
    void*    tables[1] = {table};
    uint64_t id        = 0;
    int      code      = functor("rocattach", NULL, 10201, tables, 1, &id);
    printf("  helper: rocattach %d %lu\n", code, id);
    return code;
}

#ifdef NEWER
__attribute__((visibility("default"))) int rocprofiler_attach_initialize(functor_t* functor)
{
    if(getenv("PROBE_HELPER_FAILS")) return 1;
    return begin(functor);
}
#endif

__attribute__((visibility("default"))) int rocprofiler_attach_set_api_table(const char* name, uint64_t version, uint64_t instance,
                                                                             void** tables, uint64_t count, functor_t* functor)
{
    (void)tables;
    printf("  helper: set %s %lu %lu %lu\n", name, version, instance, count);
    if(getenv("PROBE_HELPER_FAILS")) return 1;
#ifdef NEWER
    (void)functor;
    return 0;
#else
    return begin(functor);
#endif
}
