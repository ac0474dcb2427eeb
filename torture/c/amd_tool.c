/* A tool for an SDK: each time it is attached it counts the target's mark up, which shows that a cycle worked. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stddef.h>

typedef struct { size_t size; int (*initialize)(void *, void *); void (*finalize)(void *); void *data; } result;
typedef struct { size_t size; int (*attach)(void *, void *, uint64_t, void *); void (*detach)(void *); void *data; } attach_result;

static int initialize(void *end, void *data) { return (void)end, (void)data, 0; }
static void ended(void *data) { (void)data; }
static int attached(void *end, void *contexts, uint64_t count, void *data) {
    (void)end, (void)contexts, (void)count, (void)data;
    _Atomic uint32_t **mark = dlsym(RTLD_DEFAULT, "torture_mark");
    if (mark && *mark) atomic_fetch_add(*mark, 1);
    return 0;
}

__attribute__((visibility("default"))) void *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority, void *id) {
    static result one = {sizeof one, initialize, ended, 0};
    return (void)version, (void)text, (void)priority, (void)id, &one;
}
__attribute__((visibility("default"))) void *rocprofiler_configure_attach(uint32_t version, const char *text, uint32_t priority, void *id) {
    static attach_result one = {sizeof one, attached, ended, 0};
    return (void)version, (void)text, (void)priority, (void)id, &one;
}
