/* What NVTX's headers put into each library that uses them: functions that do nothing until, at the first call of any of them, the
 * library named by NVTX_INJECTION64_PATH is loaded and asked to fill in its own. For programs on the stand-in; numbers as in NVTX 3. */
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef void (*nvtx_function)(void);
enum { NVTX_CALLBACKS = 1, NVTX_CORE = 1 };
enum { NVTX_MARK_A = 2, NVTX_START_A = 5, NVTX_END = 7, NVTX_PUSH_A = 9, NVTX_POP = 11, NVTX_CORE_SIZE = 16 };

static nvtx_function nvtx_functions_[NVTX_CORE_SIZE];
static nvtx_function *nvtx_table_[NVTX_CORE_SIZE];
static pthread_once_t nvtx_once_ = PTHREAD_ONCE_INIT;

static int nvtx_module_(int module, nvtx_function ***table, unsigned *size) {
    if (module != NVTX_CORE) return 0;
    for (int i = 1; i < NVTX_CORE_SIZE; i++) nvtx_table_[i] = &nvtx_functions_[i];
    *table = nvtx_table_;
    *size = NVTX_CORE_SIZE;
    return 1;
}

static const void *nvtx_export_(uint32_t id) {
    static const struct {
        size_t size;
        int (*module)(int, nvtx_function ***, unsigned *);
    } callbacks = {sizeof callbacks, nvtx_module_};
    return id == NVTX_CALLBACKS ? &callbacks : 0;
}

static void nvtx_first_(void) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : 0;
    int (*initialise)(const void *(*)(uint32_t)) = 0;
    if (library) *(void **)&initialise = dlsym(library, "InitializeInjectionNvtx2");
    if (!initialise || !initialise(nvtx_export_))
        for (int i = 0; i < NVTX_CORE_SIZE; i++) nvtx_functions_[i] = 0;
}

static nvtx_function nvtx_of_(int id) {
    pthread_once(&nvtx_once_, nvtx_first_);
    return nvtx_functions_[id];
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
