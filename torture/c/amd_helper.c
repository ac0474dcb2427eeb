/* The attach helper that AMD's register library loads where ROCP_TOOL_ATTACH asks for it. AMD's own cannot be had here; this one does
 * what is known of it: a thread rocp-bg-attach with all signals blocked that waits for ever, and a table named "rocattach". */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

typedef int register_table(const char *, void *, uint32_t, void **, uint64_t, uint64_t *);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
/* Of its functions none is asked for here: its size first. */
static uint64_t table[12] = {sizeof table};

static void *listen_for_ever(void *nothing) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    pthread_setname_np(pthread_self(), "rocp-bg-attach");
    pthread_mutex_lock(&lock);
    for (;;) pthread_cond_wait(&never, &lock);
    return nothing;
}

__attribute__((visibility("default"))) int rocprofiler_attach_set_api_table(const char *name, uint64_t version, uint64_t instance,
                                                                          void **tables, uint64_t count, register_table *add) {
    (void)version, (void)instance, (void)tables, (void)count;
    pthread_t thread;
    void *own[1] = {table};
    uint64_t id;
    if (strcmp(name, "hsa") || pthread_create(&thread, 0, listen_for_ever, 0)) return 1;
    return add("rocattach", 0, 10201, own, 1, &id);
}
