// What Kokkos does with a tool, without Kokkos: a stand-in that loads the library of KOKKOS_TOOLS_LIBS as Kokkos's core does, and
// calls its functions around HIP kernels of the stand-in runtime. Names and types come from Kokkos Tools' interface.
//
//   kokkos ROUNDS
//
// Prints "fencing 0" or "fencing 1", what the tool asked for, "tool none" where no tool was loaded, and "done".
#include "hip.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

KERNEL(axpy, "_Z11kokkos_axpyPfS_f")
KERNEL(dot, "_Z10kokkos_dotPKfS0_Pf")

struct settings {
    bool requires_global_fencing, padding[255];
};
struct space {
    char name[64];
};

static struct {
    void (*init)(int, uint64_t, uint32_t, void *);
    void (*finalize)(void);
    void (*settings)(uint32_t, struct settings *);
    void (*begin_for)(const char *, uint32_t, uint64_t *), (*end_for)(uint64_t);
    void (*begin_reduce)(const char *, uint32_t, uint64_t *), (*end_reduce)(uint64_t);
    void (*begin_fence)(const char *, uint32_t, uint64_t *), (*end_fence)(uint64_t);
    void (*push)(const char *), (*pop)(void);
    void (*create)(const char *, uint32_t *), (*start)(uint32_t), (*stop)(uint32_t), (*destroy)(uint32_t);
    void (*event)(const char *);
    void (*begin_copy)(struct space, const char *, const void *, struct space, const char *, const void *, uint64_t), (*end_copy)(void);
} tool;

#define CALL(function, ...) do { if (tool.function) tool.function(__VA_ARGS__); } while (0)
#define FIND(member, name) *(void **)&tool.member = dlsym(library, name)

static void must(hipError_t error, const char *what) {
    if (!error) return;
    fprintf(stderr, "%s: %s\n", what, hipGetErrorString(error));
    exit(1);
}
#define MUST(call) must(call, #call)

static void load(void) {
    struct settings wanted = {.requires_global_fencing = true};
    const char *path = getenv("KOKKOS_TOOLS_LIBS");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!library) {
        if (path && *path) fprintf(stderr, "%s\n", dlerror());
        puts("tool none");
        return;
    }
    FIND(init, "kokkosp_init_library");
    FIND(finalize, "kokkosp_finalize_library");
    FIND(settings, "kokkosp_request_tool_settings");
    FIND(begin_for, "kokkosp_begin_parallel_for");
    FIND(end_for, "kokkosp_end_parallel_for");
    FIND(begin_reduce, "kokkosp_begin_parallel_reduce");
    FIND(end_reduce, "kokkosp_end_parallel_reduce");
    FIND(begin_fence, "kokkosp_begin_fence");
    FIND(end_fence, "kokkosp_end_fence");
    FIND(push, "kokkosp_push_profile_region");
    FIND(pop, "kokkosp_pop_profile_region");
    FIND(create, "kokkosp_create_profile_section");
    FIND(start, "kokkosp_start_profile_section");
    FIND(stop, "kokkosp_stop_profile_section");
    FIND(destroy, "kokkosp_destroy_profile_section");
    FIND(event, "kokkosp_profile_event");
    FIND(begin_copy, "kokkosp_begin_deep_copy");
    FIND(end_copy, "kokkosp_end_deep_copy");
    CALL(init, 0, 20211015, 0, NULL);
    CALL(settings, 1, &wanted);
    printf("fencing %d\n", wanted.requires_global_fencing);
}

static void launch(void (*kernel)(void), hipStream_t stream) {
    dim3 grid = {8, 1, 1}, block = {64, 1, 1};
    MUST(hipLaunchKernel((const void *)kernel, grid, block, 0, 0, stream));
}

static void *other(void *argument) {
    CALL(push, "on another thread");
    CALL(pop);
    return argument;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    uint64_t id = 7;
    uint32_t section = 0;
    hipStream_t stream;
    pthread_t thread;
    struct space host = {"Host"}, device = {"HIP"};
    MUST(hipSetDevice(0));
    MUST(hipStreamCreate(&stream));
    load();
    CALL(create, "whole run", &section);
    CALL(start, section);
    for (long n = 0; n < rounds; n++) {
        CALL(push, "step");
        CALL(begin_copy, device, "x_device", NULL, host, "x_host", NULL, 4096);
        CALL(end_copy);
        CALL(begin_for, "axpy loop", 0, &id);
        launch(axpy, stream);
        CALL(end_for, id);
        CALL(begin_reduce, "dot loop", 0, &id);
        launch(dot, stream);
        CALL(end_reduce, id);
        CALL(begin_fence, "end of step", 0, &id);
        MUST(hipStreamSynchronize(stream));
        CALL(end_fence, id);
        CALL(pop);
        CALL(event, "a step is over");
    }
    CALL(stop, section);
    CALL(destroy, section);
    if (pthread_create(&thread, 0, other, 0) || pthread_join(thread, 0)) return 1;
    CALL(finalize);
    MUST(hipStreamDestroy(stream));
    puts("done");
    return 0;
}
