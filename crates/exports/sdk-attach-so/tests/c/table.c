/* The functions of the table "rocattach" as functions of a library, and a runtime whose tables have the hooks:
 *
 *   rocattach_NAME   calls the table's function
 *   hsa_NAME         calls what is in the runtime's table, which is the hook once there is one
 *
 * Handles are numbers below 64, so that arbitrary ones meet them. The library itself is beside this one. FUNCTION_NAME is the place
 * of a function in the runtime's table, in bytes, and CORE_SIZE the table's size. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef uint64_t word;

static word *rocattach;
static word core[CORE_SIZE / 8] = {2 | (word)CORE_SIZE << 32}, ext[512] = {1};
static word runtime[32];
static unsigned handles;

static word next(void) { return 1 + __atomic_add_fetch(&handles, 1, __ATOMIC_RELAXED) % 63; }

static uint32_t create(word agent, uint32_t size, uint32_t kind, void *call, void *data, uint32_t part, uint32_t group, word *queue) {
    (void)agent, (void)size, (void)kind, (void)call, (void)data, (void)part, (void)group;
    *queue = next();
    return 0;
}
static uint32_t done(void) { return 0; }
static uint32_t reader(const void *code, size_t size, word *made) {
    (void)code, (void)size;
    *made = next();
    return 0;
}
static uint32_t load(word executable, word agent, word reader, const char *options, word *loaded) {
    (void)executable, (void)agent, (void)reader, (void)options;
    *loaded = next();
    return 0;
}

static uint32_t keep(const char *name, const void *import, uint32_t version, void **tables, word count, word *id) {
    (void)import, (void)version;
    if (strcmp(name, "rocattach") || count != 1) abort();
    __atomic_store_n(&rocattach, tables[0], __ATOMIC_SEQ_CST);
    *id = 1;
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    Dl_info here;
    char path[4096];
    if (!dladdr((void *)begin, &here)) abort();
    snprintf(path, sizeof path, "%.*slibrocprofiler-sdk-attach.so.1", (int)(strrchr(here.dli_fname, '/') + 1 - here.dli_fname),
             here.dli_fname);
    void *library = dlopen(path, RTLD_NOW);
    int (*initialize)(void *) = library ? dlsym(library, "rocprofiler_attach_initialize") : 0;
    if (!initialize || initialize(keep) || !rocattach) abort();
    core[CREATE / 8] = (word)create, core[DESTROY / 8] = (word)done, core[FREEZE / 8] = (word)done, core[END / 8] = (word)done;
    core[READER / 8] = (word)reader, core[CLOSE / 8] = (word)done, core[LOAD / 8] = (word)load;
    runtime[2] = (word)core, runtime[3] = (word)ext;
}

/* The table begins with its size. */
#define OF_TABLE(name, place) \
    EXPORT word rocattach_##name(word a, word b, word c) { return ((word(*)(word, word, word))rocattach[place])(a, b, c); }
OF_TABLE(get_version, 1)
OF_TABLE(iterate_all_queues, 2)
OF_TABLE(set_write_interceptor, 3)
OF_TABLE(iterate_all_code_objects, 4)
OF_TABLE(add_code_object_cb, 5)
OF_TABLE(remove_code_object_cb, 6)
OF_TABLE(add_queue_cb, 7)
OF_TABLE(remove_queue_cb, 8)
OF_TABLE(lookup_memory_codeobj_data, 9)
OF_TABLE(is_hsa_interception_active, 10)
OF_TABLE(initialize_hsa_interception, 11)

/* The runtime gives its own tables, which are hooked. */
EXPORT word rocattach_hook_the_runtime(void) { return rocattach_initialize_hsa_interception((word)runtime, 0, 0); }

static word call(int place, word a, word b, word c) {
    return ((word(*)(word, word, word))__atomic_load_n(&core[place / 8], __ATOMIC_SEQ_CST))(a, b, c);
}
EXPORT word hsa_queue_create(word agent) {
    uint32_t (*make)(word, uint32_t, uint32_t, void *, void *, uint32_t, uint32_t, word *) =
        (void *)__atomic_load_n(&core[CREATE / 8], __ATOMIC_SEQ_CST);
    word queue;
    return make(agent, 64, 0, 0, 0, 0, 0, &queue);
}
EXPORT word hsa_queue_destroy(word queue) { return call(DESTROY, queue, 0, 0); }
EXPORT word hsa_executable_freeze(word executable) { return call(FREEZE, executable, 0, 0); }
EXPORT word hsa_executable_destroy(word executable) { return call(END, executable, 0, 0); }
EXPORT word hsa_reader_create(void) {
    static const char code[64];
    word made;
    return call(READER, (word)code, sizeof code, (word)&made);
}
EXPORT word hsa_reader_destroy(word reader) { return call(CLOSE, reader, 0, 0); }
EXPORT word hsa_load(word executable, word reader) {
    word (*function)(word, word, word, word, word *) = (void *)__atomic_load_n(&core[LOAD / 8], __ATOMIC_SEQ_CST);
    word loaded;
    return function(executable, 5, reader, 0, &loaded);
}
