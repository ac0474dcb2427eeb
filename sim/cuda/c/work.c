/* libcuda.so.1: kernels, graphs, memory. */
#define MODEL_DRIVER
#include "model.h"
#include <stdlib.h>
#include <string.h>

struct model_module {
    struct model_function *first;
};
struct model_function {
    char *name;
    uint32_t registers, static_shared;
    struct model_function *next;
};
struct model_node {
    uint64_t id; /* first: see model.h */
    struct model_work work;
    void (*effect)(void *);
    uint64_t argument[4];
    struct model_node *next;
};
struct model_graph {
    uint32_t id, nodes;
    struct model_node *first, *last;
};
struct model_graph_exec {
    uint32_t id;
    struct model_node *first;
};

static uint32_t graph_count;

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    CALL(cuModuleLoadData);
    (void)image;
    *module = calloc(1, sizeof **module);
    DONE(*module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Every name is a kernel of every module; what it needs follows from the name. */
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CALL(cuModuleGetFunction);
    struct model_function *made = calloc(1, sizeof *made);
    if (!made || !(made->name = strdup(name))) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    made->registers = 16 + (uint32_t)strlen(name);
    made->static_shared = 64 * (uint32_t)strlen(name);
    pthread_mutex_lock(&model_lock);
    made->next = module->first;
    module->first = made;
    pthread_mutex_unlock(&model_lock);
    *function = made;
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
    CALL(cuModuleUnload);
    while (module->first) {
        struct model_function *function = module->first;
        module->first = function->next;
        free(function->name);
        free(function);
    }
    free(module);
    DONE(CUDA_SUCCESS);
}

/* A kernel whose arguments are an address and a count adds 1 to each of as many words; one without arguments does nothing. */
static void add_one(void *argument) {
    const uint64_t *words = argument;
    for (uint64_t i = 0; i < words[1]; i++) __atomic_add_fetch((uint32_t *)words[0] + i, 1, __ATOMIC_RELAXED);
}

static CUresult launch(CUfunction function, const unsigned *shape, unsigned shared, CUstream wanted, void **params) {
    struct model_stream *stream = model_stream(wanted);
    if (!stream || !function) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < 6; i++)
        if (!shape[i]) return CUDA_ERROR_INVALID_VALUE;
    if ((uint64_t)shape[3] * shape[4] * shape[5] > 1024) return CUDA_ERROR_INVALID_VALUE;
    struct model_work work = {.kind = MODEL_KERNEL, .name = function->name, .async = true};
    memcpy(work.grid, shape, sizeof work.grid);
    memcpy(work.block, shape + 3, sizeof work.block);
    work.registers = function->registers;
    work.static_shared = function->static_shared;
    work.dynamic_shared = shared;
    uint64_t argument[2] = {0, 0};
    if (params) {
        argument[0] = *(const uint64_t *)params[0];
        argument[1] = *(const uint32_t *)params[1];
    }
    if (model_captured(stream, &work, add_one, argument, sizeof argument)) return CUDA_SUCCESS;
    add_one(argument);
    model_run(stream, &work, model_kernel_ns());
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
    CALL(cuLaunchKernel);
    const unsigned shape[6] = {gx, gy, gz, bx, by, bz};
    DONE(extra ? CUDA_ERROR_INVALID_VALUE : launch(function, shape, shared, stream, params));
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
    CALL(cuLaunchKernelEx);
    DONE(extra ? CUDA_ERROR_INVALID_VALUE
               : launch(function, &config->gridDimX, config->sharedMemBytes, config->hStream, params));
}

bool model_captured(struct model_stream *stream, const struct model_work *work, void (*effect)(void *), const void *argument,
                    size_t bytes) {
    struct model_graph *graph = stream->capture;
    if (!graph) return false;
    struct model_node *node = calloc(1, sizeof *node);
    if (!node || bytes > sizeof node->argument) abort();
    node->work = *work;
    node->effect = effect;
    memcpy(node->argument, argument, bytes);
    node->id = ((uint64_t)graph->id << 32) + ++graph->nodes;
    if (graph->last) graph->last->next = node;
    else graph->first = node;
    graph->last = node;
    model_notify(3, MODEL_NODE_CREATED, &(struct model_made_node){.node = &node->id, .type = work->kind == MODEL_KERNEL ? 0 : 1});
    return true;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream, int mode) {
    CALL(cuStreamBeginCapture_v2);
    (void)mode;
    if (!stream || stream->capture) DONE(CUDA_ERROR_INVALID_VALUE);
    stream->capture = calloc(1, sizeof *stream->capture);
    if (!stream->capture) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    stream->capture->id = __atomic_add_fetch(&graph_count, 1, __ATOMIC_RELAXED);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    CALL(cuStreamEndCapture);
    if (!stream || !stream->capture) DONE(CUDA_ERROR_INVALID_VALUE);
    bool spoilt = stream->spoilt;
    *graph = stream->capture;
    stream->capture = 0;
    stream->spoilt = false;
    DONE(spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CALL(cuGraphInstantiateWithFlags);
    (void)flags;
    struct model_graph_exec *made = calloc(1, sizeof *made);
    struct model_node **last = &made->first;
    if (!made) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    made->id = graph->id;
    /* The nodes of an executable graph have ids of their own, which its kernels' records name. */
    uint64_t copies = (uint64_t)__atomic_add_fetch(&graph_count, 1, __ATOMIC_RELAXED) << 32;
    for (const struct model_node *node = graph->first; node; node = node->next) {
        struct model_node *copy = malloc(sizeof *copy);
        if (!copy) abort();
        *copy = *node;
        copy->id = ++copies;
        copy->next = 0;
        *last = copy;
        last = &copy->next;
        const uint32_t type = node->work.kind == MODEL_KERNEL ? 0 : 1;
        const struct model_made_node about = {.node = &copy->id, .original = &node->id, .type = type};
        /* CUPTI reports a copy twice. */
        model_notify(3, MODEL_NODE_CREATED, &about);
        model_notify(3, MODEL_NODE_CLONED, &about);
    }
    *exec = made;
    DONE(CUDA_SUCCESS);
}

/* Each node is reported separately, under the one number of the call that launched the graph. */
EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream wanted) {
    CALL(cuGraphLaunch);
    struct model_stream *stream = model_stream(wanted);
    if (!stream) DONE(CUDA_ERROR_INVALID_CONTEXT);
    for (struct model_node *node = exec->first; node; node = node->next) {
        struct model_work work = node->work;
        work.graph = exec->id;
        work.graph_node = node->id;
        node->effect(node->argument);
        model_run(stream, &work, model_kernel_ns());
    }
    DONE(CUDA_SUCCESS);
}

static void free_nodes(struct model_node *node) {
    while (node) {
        struct model_node *next = node->next;
        free(node);
        node = next;
    }
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    CALL(cuGraphExecDestroy);
    free_nodes(exec->first);
    free(exec);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuGraphDestroy(CUgraph graph) {
    CALL(cuGraphDestroy);
    free_nodes(graph->first);
    free(graph);
    DONE(CUDA_SUCCESS);
}

/* Memory: the host's, with a note of whose it is. */
struct block {
    uint64_t at, bytes;
    uint8_t kind;
    uint32_t device;
    struct block *next;
};
static struct block *blocks;

static struct block of(uint64_t at) {
    struct block found = {.kind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE};
    pthread_mutex_lock(&model_lock);
    for (const struct block *block = blocks; block; block = block->next)
        if (at - block->at < block->bytes) found = *block;
    pthread_mutex_unlock(&model_lock);
    return found;
}

static void tell_memory(const struct block *block, bool came) {
    CUcontext context = model_context();
    struct model_memory memory = {.came = came, .kind = block->kind, .device = block->device, .at = block->at};
    memory.context = context ? context->id : 0;
    memory.correlation = model_correlation();
    memory.bytes = block->bytes;
    memory.time = model_now();
    model_log("memory came=%d kind=%u device=%u at=%lu bytes=%lu correlation=%u time=%lu\n", came, block->kind, block->device,
              block->at, block->bytes, memory.correlation, memory.time);
    const struct model_hooks *there = model_take_hooks();
    if (!there) return;
    if (memory.correlation) there->memory(&memory);
    model_give_hooks();
}

static CUresult allocate(uint64_t *at, size_t bytes, uint8_t kind) {
    CUcontext context = model_context();
    if (!context || !bytes) return CUDA_ERROR_INVALID_VALUE;
    struct block *block = calloc(1, sizeof *block);
    void *memory = calloc(1, bytes);
    if (!block || !memory) abort();
    *block = (struct block){(uint64_t)memory, bytes, kind, context->device, 0};
    pthread_mutex_lock(&model_lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&model_lock);
    *at = (uint64_t)memory;
    tell_memory(block, true);
    return CUDA_SUCCESS;
}

static CUresult release(uint64_t at) {
    pthread_mutex_lock(&model_lock);
    struct block **place = &blocks, *block;
    while (*place && (*place)->at != at) place = &(*place)->next;
    if ((block = *place)) *place = block->next;
    pthread_mutex_unlock(&model_lock);
    if (!block) return CUDA_ERROR_INVALID_VALUE;
    tell_memory(block, false);
    free((void *)block->at);
    free(block);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc(CUdeviceptr *at, size_t bytes) {
    CALL(cuMemAlloc_v2);
    DONE(allocate(at, bytes, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE));
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *at, size_t bytes, unsigned flags) {
    CALL(cuMemAllocManaged);
    (void)flags;
    DONE(allocate(at, bytes, CUPTI_ACTIVITY_MEMORY_KIND_MANAGED));
}

EXPORT CUresult cuMemFree(CUdeviceptr at) {
    CALL(cuMemFree_v2);
    DONE(release(at));
}

EXPORT CUresult cuMemAllocHost(void **at, size_t bytes) {
    CALL(cuMemAllocHost_v2);
    DONE(allocate((uint64_t *)at, bytes, CUPTI_ACTIVITY_MEMORY_KIND_PINNED));
}

EXPORT CUresult cuMemFreeHost(void *at) {
    CALL(cuMemFreeHost);
    DONE(release((uint64_t)at));
}

struct move {
    uint64_t to, from, bytes;
};

static void move_bytes(void *argument) {
    const struct move *move = argument;
    memmove((void *)move->to, (const void *)move->from, move->bytes);
}

static CUresult copy(struct move move, CUstream wanted, bool async) {
    struct model_stream *stream = model_stream(wanted);
    if (!stream || !move.bytes) return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    struct block from = of(move.from), to = of(move.to);
    bool on_from = from.kind >= CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, on_to = to.kind >= CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    struct model_work work = {.kind = MODEL_COPY, .bytes = move.bytes, .async = async};
    work.from_kind = from.kind;
    work.to_kind = to.kind;
    work.from_device = from.device;
    work.to_device = to.device;
    work.copy_kind = (uint8_t)(on_from ? (on_to ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD : CUPTI_ACTIVITY_MEMCPY_KIND_DTOH)
                                       : (on_to ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH));
    if (model_captured(stream, &work, move_bytes, &move, sizeof move)) return CUDA_SUCCESS;
    move_bytes(&move);
    model_run(stream, &work, 1000 + move.bytes / 16);
    if (!async) model_wait_until(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, stream, UINT32_MAX, work.end);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    CALL(cuMemcpyHtoD_v2);
    DONE(copy((struct move){to, (uint64_t)from, bytes}, 0, false));
}

EXPORT CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    CALL(cuMemcpyDtoH_v2);
    DONE(copy((struct move){(uint64_t)to, from, bytes}, 0, false));
}

EXPORT CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    CALL(cuMemcpyHtoDAsync_v2);
    DONE(copy((struct move){to, (uint64_t)from, bytes}, stream, true));
}

EXPORT CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    CALL(cuMemcpyDtoHAsync_v2);
    DONE(copy((struct move){(uint64_t)to, from, bytes}, stream, true));
}

EXPORT CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    CALL(cuMemcpyDtoDAsync_v2);
    DONE(copy((struct move){to, from, bytes}, stream, true));
}

EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    CALL(cuMemcpyAsync);
    DONE(copy((struct move){to, from, bytes}, stream, true));
}

EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                                  CUstream wanted) {
    CALL(cuMemcpyPeerAsync);
    struct model_stream *stream = model_stream(wanted);
    if (!stream || !bytes) DONE(CUDA_ERROR_INVALID_VALUE);
    struct model_work work = {.kind = MODEL_PEER, .bytes = bytes, .async = true};
    work.copy_kind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
    work.from_kind = work.to_kind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    work.from_device = from_context->device;
    work.from_context = from_context->id;
    work.to_device = to_context->device;
    work.to_context = to_context->id;
    struct move move = {to, from, bytes};
    if (model_captured(stream, &work, move_bytes, &move, sizeof move)) DONE(CUDA_SUCCESS);
    move_bytes(&move);
    model_run(stream, &work, 1000 + bytes / 16);
    DONE(CUDA_SUCCESS);
}

struct fill {
    uint64_t at, count;
    uint32_t value, width;
};

static void fill_bytes(void *argument) {
    const struct fill *fill = argument;
    for (uint64_t i = 0; i < fill->count; i++) memcpy((char *)fill->at + i * fill->width, &fill->value, fill->width);
}

static CUresult set(struct fill fill, CUstream wanted, bool async) {
    struct model_stream *stream = model_stream(wanted);
    if (!stream || !fill.count) return stream ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    struct model_work work = {.kind = MODEL_SET, .bytes = fill.count * fill.width, .value = fill.value, .async = async};
    work.to_kind = of(fill.at).kind;
    if (model_captured(stream, &work, fill_bytes, &fill, sizeof fill)) return CUDA_SUCCESS;
    fill_bytes(&fill);
    model_run(stream, &work, 500 + work.bytes / 64);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream stream) {
    CALL(cuMemsetD8Async);
    DONE(set((struct fill){at, count, value, 1}, stream, true));
}

EXPORT CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream stream) {
    CALL(cuMemsetD32Async);
    DONE(set((struct fill){at, count, value, 4}, stream, true));
}

EXPORT CUresult cuMemsetD32(CUdeviceptr at, unsigned value, size_t count) {
    CALL(cuMemsetD32_v2);
    DONE(set((struct fill){at, count, value, 4}, 0, false));
}
