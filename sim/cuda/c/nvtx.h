/* What NVTX's headers put into each library that uses them: a table of functions that do nothing until, at the first call of any of
 * them, the library named by NVTX_INJECTION64_PATH is loaded and asked to fill in its own; without one they are null for ever. For
 * programs on the stand-in; numbers and layout as in NVTX 3. */
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*nvtx_function)(void);
enum { NVTX_CALLBACKS = 1, NVTX_CORE = 1 };
enum { NVTX_MARK_A = 2, NVTX_START_A = 5, NVTX_END = 7, NVTX_PUSH_A = 9, NVTX_POP = 11, NVTX_CORE_SIZE = 16 };
/* Functions of the six modules, in the order of the table; a list of places has null in front and behind. */
enum { NVTX_MODULES = 6, NVTX_PLACES = 64, NVTX_LISTS = NVTX_PLACES + 2 * NVTX_MODULES };
enum { NVTX_FRESH, NVTX_STARTED, NVTX_COMPLETE };

static int nvtx_module_(int module, nvtx_function ***table, unsigned *size);
static void nvtx_version_(uint32_t version) { (void)version; }
/* Stands for the functions that make the first call. */
static void nvtx_uncalled_(void) {}

static struct nvtx_table_ {
    volatile unsigned state;
    struct {
        size_t size;
        int (*module)(int, nvtx_function ***, unsigned *);
    } callbacks;
    struct {
        size_t size;
        uint32_t version, reserved;
        void (*set)(uint32_t);
    } version;
    nvtx_function places[NVTX_PLACES];
    nvtx_function *lists[NVTX_LISTS];
} nvtx_ = {.callbacks = {16, nvtx_module_}, .version = {24, 3, 0, nvtx_version_}};
static pthread_once_t nvtx_once_ = PTHREAD_ONCE_INIT;

__attribute__((constructor)) static void nvtx_laid_out_(void) {
    static const int functions[NVTX_MODULES] = {15, 8, 14, 6, 15, 6};
    int place = 0, list = 0;
    for (int module = 0; module < NVTX_MODULES; module++, list += 2)
        for (int id = 0; id < functions[module]; id++, place++, list++) {
            nvtx_.places[place] = nvtx_uncalled_;
            nvtx_.lists[list + 1] = &nvtx_.places[place];
        }
}

static int nvtx_module_(int module, nvtx_function ***table, unsigned *size) {
    if (module != NVTX_CORE) return 0;
    *table = nvtx_.lists;
    *size = NVTX_CORE_SIZE;
    return 1;
}

static const void *nvtx_export_(uint32_t id) { return id == NVTX_CALLBACKS ? &nvtx_.callbacks : 0; }

static void nvtx_first_(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : 0;
    int (*initialise)(const void *(*)(uint32_t)) = 0;
    nvtx_.state = NVTX_STARTED;
    if (library) *(void **)&initialise = dlsym(library, "InitializeInjectionNvtx2");
    int filled = initialise && initialise(nvtx_export_);
    for (int i = 0; i < NVTX_PLACES; i++)
        if (!filled || nvtx_.places[i] == nvtx_uncalled_) __atomic_store_n(&nvtx_.places[i], 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&nvtx_.state, NVTX_COMPLETE, __ATOMIC_SEQ_CST);
}

static nvtx_function nvtx_of_(int id) {
    nvtx_function function = __atomic_load_n(&nvtx_.places[id - 1], __ATOMIC_ACQUIRE);
    if (function != nvtx_uncalled_) return function;
    pthread_once(&nvtx_once_, nvtx_first_);
    return __atomic_load_n(&nvtx_.places[id - 1], __ATOMIC_ACQUIRE);
}

static inline int nvtxRangePushA(const char *name) {
    nvtx_function function = nvtx_of_(NVTX_PUSH_A);
    return function ? ((int (*)(const char *))function)(name) : -2;
}
static inline int nvtxRangePop(void) {
    nvtx_function function = nvtx_of_(NVTX_POP);
    return function ? ((int (*)(void))function)() : -2;
}
static inline void nvtxMarkA(const char *name) {
    nvtx_function function = nvtx_of_(NVTX_MARK_A);
    if (function) ((void (*)(const char *))function)(name);
}
static inline uint64_t nvtxRangeStartA(const char *name) {
    nvtx_function function = nvtx_of_(NVTX_START_A);
    return function ? ((uint64_t (*)(const char *))function)(name) : 0;
}
static inline void nvtxRangeEnd(uint64_t id) {
    nvtx_function function = nvtx_of_(NVTX_END);
    if (function) ((void (*)(uint64_t))function)(id);
}
