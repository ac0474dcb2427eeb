/* libcuda.so.1: contexts, streams, events, and how work is queued. */
#define _GNU_SOURCE
#define MODEL_DRIVER
#include "model.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* As CUPTI numbers them: contexts from 1, a context's default stream is 7, others follow from 13. */
enum { DEFAULT_STREAM = 7, FIRST_STREAM = 13 };

static struct model_context *contexts, *primary[2];
static uint32_t context_count, event_count;
static __thread CUcontext current;

static struct model_context *make_context(CUdevice device) {
    struct model_context *context = calloc(1, sizeof *context);
    struct model_stream *stream = calloc(1, sizeof *stream);
    if (!context || !stream) abort();
    if (!context_count) model_first_context();
    *stream = (struct model_stream){.id = DEFAULT_STREAM, .context = context};
    *context = (struct model_context){++context_count, (uint32_t)device, 0, stream, stream, 0, 0};
    return context;
}

static struct model_context *list(struct model_context *context) {
    context->next = contexts;
    return contexts = context;
}

void model_forget(uint64_t tools) {
    pthread_mutex_lock(&model_lock);
    for (struct model_context *context = contexts; context; context = context->next)
        if (context->tools == tools) context->tools = 0;
    pthread_mutex_unlock(&model_lock);
}

uint32_t model_contexts(void) {
    uint32_t count = 0;
    pthread_mutex_lock(&model_lock);
    for (struct model_context *context = contexts; context; context = context->next) count++;
    pthread_mutex_unlock(&model_lock);
    return count;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CALL(cuDevicePrimaryCtxRetain);
    if (!model_ready()) DONE(CUDA_ERROR_NOT_INITIALIZED);
    if (device < 0 || device > 1) DONE(CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&model_lock);
    if (!primary[device]) primary[device] = list(make_context(device));
    *context = primary[device];
    pthread_mutex_unlock(&model_lock);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    CALL(cuDevicePrimaryCtxGetState);
    if (device < 0 || device > 1) DONE(CUDA_ERROR_INVALID_DEVICE);
    *flags = 0;
    *active = primary[device] != 0;
    DONE(CUDA_SUCCESS);
}

/* It stays: nothing here is destroyed with the last user. */
EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    CALL(cuDevicePrimaryCtxRelease_v2);
    DONE(device < 0 || device > 1 || !primary[device] ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
}

/* CUDA_MODEL_CONTEXT_MS: so long after it has called libcupti, the call goes on to list the context. */
EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device) {
    CALL(cuCtxCreate_v2);
    (void)flags;
    if (!model_ready()) DONE(CUDA_ERROR_NOT_INITIALIZED);
    if (device < 0 || device > 1) DONE(CUDA_ERROR_INVALID_DEVICE);
    const char *ms = getenv("CUDA_MODEL_CONTEXT_MS");
    pthread_mutex_lock(&model_lock);
    current = make_context(device);
    pthread_mutex_unlock(&model_lock);
    model_notify(2, 1, &current->tools);
    if (ms) usleep((useconds_t)atol(ms) * 1000);
    pthread_mutex_lock(&model_lock);
    *context = list(current);
    pthread_mutex_unlock(&model_lock);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
    CALL(cuCtxDestroy_v2);
    model_notify(2, 2, &context->tools);
    pthread_mutex_lock(&model_lock);
    struct model_context **at = &contexts;
    while (*at && *at != context) at = &(*at)->next;
    if (*at) {
        *at = context->next;
        while (context->first) {
            struct model_stream *stream = context->first;
            context->first = stream->next;
            free(stream);
        }
        free(context);
        if (current == context) current = 0;
        context = 0;
    }
    pthread_mutex_unlock(&model_lock);
    DONE(context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    CALL(cuCtxSetCurrent);
    current = context;
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    CALL(cuCtxGetCurrent);
    *context = current;
    DONE(CUDA_SUCCESS);
}

CUcontext model_context(void) { return current; }

struct model_stream *model_stream(CUstream stream) {
    if (stream) return stream;
    return current ? current->default_stream : 0;
}

void model_run(struct model_stream *stream, struct model_work *work, uint64_t ns) {
    pthread_mutex_lock(&model_lock);
    uint64_t now = model_now();
    work->device = stream->context->device;
    work->context = stream->context->id;
    work->stream = stream->id;
    work->correlation = model_correlation();
    work->tid = model_tid();
    work->start = stream->until > now ? stream->until : now;
    work->end = stream->until = work->start + ns;
    pthread_mutex_unlock(&model_lock);
    static const char *const names[] = {"kernel", "copy", "peer", "set"};
    model_log("%s tid=%u correlation=%u device=%u context=%u stream=%u start=%lu end=%lu graph=%u node=%lu name=%s "
              "grid=%u,%u,%u block=%u,%u,%u registers=%u static=%u dynamic=%u bytes=%lu value=%u kind=%u from=%u to=%u\n",
              names[work->kind], work->tid, work->correlation, work->device, work->context, work->stream, work->start, work->end,
              work->graph, work->graph_node, work->name ? work->name : "-", work->grid[0], work->grid[1], work->grid[2],
              work->block[0], work->block[1], work->block[2], work->registers, work->static_shared, work->dynamic_shared,
              work->bytes, work->value, work->copy_kind, work->from_device, work->to_device);
    const struct model_hooks *there = model_take_hooks();
    if (!there) return;
    /* A call that began before a client subscribed has no number and is not reported. */
    if (work->correlation) there->work(work);
    model_give_hooks();
}

void model_wait_until(uint32_t type, struct model_stream *stream, uint32_t event, uint64_t until) {
    struct model_wait wait = {.type = type, .context = stream->context->id, .stream = stream->id, .event = event};
    wait.correlation = model_correlation();
    wait.start = model_now();
    if (type == CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE) wait.stream = UINT32_MAX;
    if (type != CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT) {
        struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        while (model_now() < until) clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &at, 0);
    }
    wait.end = model_now();
    model_log("wait tid=%u correlation=%u context=%u stream=%u type=%u start=%lu end=%lu\n", model_tid(), wait.correlation,
              wait.context, wait.stream, type, wait.start, wait.end);
    const struct model_hooks *there = model_take_hooks();
    if (!there) return;
    if (wait.correlation) there->wait(&wait);
    model_give_hooks();
}

static uint64_t end_of(const struct model_stream *stream) {
    pthread_mutex_lock(&model_lock);
    uint64_t until = stream->until;
    pthread_mutex_unlock(&model_lock);
    return until;
}

EXPORT CUresult cuCtxSynchronize(void) {
    CALL(cuCtxSynchronize);
    if (!current) DONE(CUDA_ERROR_INVALID_CONTEXT);
    uint64_t until = 0;
    bool captured = false;
    pthread_mutex_lock(&model_lock);
    for (struct model_stream *stream = current->first; stream; stream = stream->next) {
        if (stream->until > until) until = stream->until;
        if (stream->capture) captured = stream->spoilt = true;
    }
    pthread_mutex_unlock(&model_lock);
    if (captured) DONE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    model_wait_until(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE, model_stream(0), UINT32_MAX, until);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    CALL(cuStreamCreate);
    (void)flags;
    if (!current) DONE(CUDA_ERROR_INVALID_CONTEXT);
    struct model_stream *made = calloc(1, sizeof *made);
    if (!made) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&model_lock);
    *made = (struct model_stream){.id = FIRST_STREAM + current->streams++, .context = current, .next = current->first};
    current->first = made;
    pthread_mutex_unlock(&model_lock);
    *stream = made;
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamDestroy(CUstream stream) {
    CALL(cuStreamDestroy_v2);
    if (!stream || stream->id == DEFAULT_STREAM) DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&model_lock);
    struct model_stream **at = &stream->context->first;
    while (*at && *at != stream) at = &(*at)->next;
    if (*at) *at = stream->next;
    pthread_mutex_unlock(&model_lock);
    free(stream);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamSynchronize(CUstream wanted) {
    CALL(cuStreamSynchronize);
    struct model_stream *stream = model_stream(wanted);
    if (!stream) DONE(CUDA_ERROR_INVALID_CONTEXT);
    model_wait_until(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE, stream, UINT32_MAX, end_of(stream));
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuStreamWaitEvent(CUstream wanted, CUevent event, unsigned flags) {
    CALL(cuStreamWaitEvent);
    struct model_stream *stream = model_stream(wanted);
    if (!stream || flags) DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&model_lock);
    if (stream->until < event->at) stream->until = event->at;
    pthread_mutex_unlock(&model_lock);
    model_wait_until(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT, stream, event->id, 0);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CALL(cuEventCreate);
    (void)flags;
    struct model_event *made = calloc(1, sizeof *made);
    if (!made) DONE(CUDA_ERROR_OUT_OF_MEMORY);
    made->id = __atomic_add_fetch(&event_count, 1, __ATOMIC_RELAXED);
    *event = made;
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuEventDestroy(CUevent event) {
    CALL(cuEventDestroy_v2);
    free(event);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream wanted) {
    CALL(cuEventRecord);
    struct model_stream *stream = model_stream(wanted);
    if (!stream) DONE(CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&model_lock);
    uint64_t now = model_now();
    event->at = stream->until > now ? stream->until : now;
    pthread_mutex_unlock(&model_lock);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuEventSynchronize(CUevent event) {
    CALL(cuEventSynchronize);
    struct model_stream *stream = model_stream(0);
    if (!stream) DONE(CUDA_ERROR_INVALID_CONTEXT);
    model_wait_until(CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE, stream, event->id, event->at);
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    CALL(cuEventElapsedTime);
    *ms = (float)((double)(int64_t)(to->at - from->at) / 1e6);
    DONE(CUDA_SUCCESS);
}
