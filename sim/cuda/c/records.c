/* libcupti.so: what the driver tells becomes records, in the layouts of the version. */
#define _GNU_SOURCE
#define MODEL_CUPTI
#include "cupti.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Versions by which layouts differ (source: the headers of NVIDIA's packages 12.0 to 13.5). */
enum { V12_6 = 24, V12_8 = 26, V13_0 = 130000, V13_1 = 130100, V13_3 = 130300, V13_4 = 130400 };

static atomic_uint correlations;
atomic_bool model_ids_stand_still;

struct name {
    struct name *next;
    char text[];
};
static struct name *names;

const char *model_name(const char *text) {
    if (!text) return 0;
    for (struct name *name = names; name; name = name->next)
        if (!strcmp(name->text, text)) return name->text;
    struct name *name = malloc(sizeof *name + strlen(text) + 1);
    if (!name) abort();
    strcpy(name->text, text);
    name->next = names;
    names = name;
    return name->text;
}

void model_forget_names(void) {
    while (names) {
        struct name *name = names;
        names = name->next;
        /* Code that still reads it must notice. */
        memset(name->text, '!', strlen(name->text));
        free(name);
    }
}

size_t model_record_size(uint32_t kind) {
    uint32_t version = model_version();
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return version >= V13_4   ? sizeof(struct newer_Kernel13)
               : version >= V13_3 ? sizeof(struct newer_Kernel12)
               : version >= V13_1 ? sizeof(struct newer_Kernel11)
               : version >= V13_0 ? sizeof(struct v13_Kernel10)
                                  : sizeof(struct v12_Kernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return version >= V13_4   ? sizeof(struct newer_Memcpy7)
               : version >= V12_8 ? sizeof(struct v12_Memcpy6)
                                  : sizeof(struct v12_Memcpy5);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(struct v12_MemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return version >= V13_4 ? sizeof(struct newer_Memset5) : sizeof(struct v12_Memset4);
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME: return sizeof(struct v12_API);
    case CUPTI_ACTIVITY_KIND_MARKER: return sizeof(struct v12_Marker2);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
        return version >= V12_8 ? sizeof(struct v12_Synchronization2) : sizeof(struct v12_Synchronization);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
        return version >= V12_6 ? sizeof(struct v12_Memory4) : sizeof(struct v12_Memory3);
    default: return 0;
    }
}

static uint32_t correlation(void) {
    model_thread_calls();
    return atomic_load(&model_ids_stand_still) ? atomic_load(&correlations) : atomic_fetch_add(&correlations, 1) + 1;
}

/* Members that all of a record's layouts have, at whatever place. */
#define WRITE_KERNEL(type)                                                                                                     \
    do {                                                                                                                       \
        struct type *r = (struct type *)record;                                                                                \
        r->registersPerThread = (uint16_t)work->registers;                                                                     \
        r->start = model_to_cupti(work->start);                                                                                \
        r->end = r->start + model_length(work->end - work->start);                                                             \
        r->deviceId = work->device;                                                                                            \
        r->contextId = work->context;                                                                                          \
        r->streamId = work->stream;                                                                                            \
        r->gridX = (int32_t)work->grid[0], r->gridY = (int32_t)work->grid[1], r->gridZ = (int32_t)work->grid[2];               \
        r->blockX = (int32_t)work->block[0], r->blockY = (int32_t)work->block[1], r->blockZ = (int32_t)work->block[2];         \
        r->staticSharedMemory = (int32_t)work->static_shared;                                                                  \
        r->dynamicSharedMemory = (int32_t)work->dynamic_shared;                                                                \
        r->localMemoryPerThread = work->local;                                                                                 \
        r->correlationId = work->correlation;                                                                                  \
        r->gridId = (int64_t)work->correlation;                                                                                \
        r->name = model_name(work->name);                                                                                      \
        r->graphId = work->graph;                                                                                              \
        r->graphNodeId = work->graph_node;                                                                                     \
        r->channelID = UINT32_MAX;                                                                                             \
    } while (0)

#define WRITE_COPY(type)                                                                                                       \
    do {                                                                                                                       \
        struct type *r = (struct type *)record;                                                                                \
        r->copyKind = work->copy_kind, r->srcKind = work->from_kind, r->dstKind = work->to_kind;                               \
        r->flags = work->async;                                                                                                \
        r->bytes = work->bytes;                                                                                                \
        r->start = model_to_cupti(work->start);                                                                                \
        r->end = r->start + model_length(work->end - work->start);                                                             \
        r->deviceId = work->device, r->contextId = work->context, r->streamId = work->stream;                                  \
        r->correlationId = work->correlation;                                                                                  \
        r->graphNodeId = work->graph_node;                                                                                     \
        r->graphId = work->graph;                                                                                              \
    } while (0)

#define WRITE_SET(type)                                                                                                        \
    do {                                                                                                                       \
        struct type *r = (struct type *)record;                                                                                \
        r->value = work->value;                                                                                                \
        r->bytes = work->bytes;                                                                                                \
        r->start = model_to_cupti(work->start);                                                                                \
        r->end = r->start + model_length(work->end - work->start);                                                             \
        r->deviceId = work->device, r->contextId = work->context, r->streamId = work->stream;                                  \
        r->correlationId = work->correlation;                                                                                  \
        r->flags = work->async;                                                                                                \
        r->memoryKind = work->to_kind;                                                                                         \
        r->graphNodeId = work->graph_node;                                                                                     \
        r->graphId = work->graph;                                                                                              \
    } while (0)

static void odd(void) {
    if (!model_fault("odd", 0)) return;
    struct v12_API *unknown = model_slot(sizeof *unknown, 0);
    if (unknown) *unknown = (struct v12_API){.kind = 0x7ffe, .cbid = 0xffffffff, .start = UINT64_MAX};
    struct v12_API *call = model_slot(sizeof *call, 0);
    if (call) *call = (struct v12_API){.kind = CUPTI_ACTIVITY_KIND_DRIVER, .cbid = 0x7fffffff, .start = UINT64_MAX, .end = 1};
}

static void work(const struct model_work *work) {
    static const uint32_t kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                     CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMSET};
    uint32_t kind = kinds[work->kind], version = model_version();
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && !model_on(kind)) kind = CUPTI_ACTIVITY_KIND_KERNEL;
    if (!model_on(kind)) return;
    model_lock_records();
    odd();
    CUpti_Activity *record = model_slot(model_record_size(kind), work->end);
    if (record) {
        record->kind = kind;
        if (work->kind == MODEL_KERNEL) {
            if (version >= V13_4) WRITE_KERNEL(newer_Kernel13);
            else if (version >= V13_3) WRITE_KERNEL(newer_Kernel12);
            else if (version >= V13_1) WRITE_KERNEL(newer_Kernel11);
            else if (version >= V13_0) WRITE_KERNEL(v13_Kernel10);
            else WRITE_KERNEL(v12_Kernel9);
            if (model_fault("odd", 0)) {
                struct v12_Kernel9 *kernel = (struct v12_Kernel9 *)model_slot(model_record_size(kind), 0);
                if (kernel) kernel->kind = kind, kernel->start = UINT64_MAX, kernel->end = 5, kernel->gridX = -1;
            }
        } else if (work->kind == MODEL_COPY) {
            if (version >= V13_4) WRITE_COPY(newer_Memcpy7);
            else if (version >= V13_0) WRITE_COPY(v13_Memcpy6);
            else if (version >= V12_8) WRITE_COPY(v12_Memcpy6);
            else WRITE_COPY(v12_Memcpy5);
        } else if (work->kind == MODEL_PEER) {
            WRITE_COPY(v12_MemcpyPtoP4);
            struct v12_MemcpyPtoP4 *peer = (struct v12_MemcpyPtoP4 *)record;
            peer->srcDeviceId = work->from_device, peer->srcContextId = work->from_context;
            peer->dstDeviceId = work->to_device, peer->dstContextId = work->to_context;
        } else {
            if (version >= V13_4) WRITE_SET(newer_Memset5);
            else WRITE_SET(v12_Memset4);
        }
    }
    model_unlock_records();
}

void model_kernel_meanwhile(void) {
    CUpti_Activity *record = model_slot(model_record_size(CUPTI_ACTIVITY_KIND_KERNEL), 0);
    if (record) record->kind = CUPTI_ACTIVITY_KIND_KERNEL;
}

/* As pthread_self, or as the kernel counts: what cuptiSetThreadIdType says. */
static uint32_t thread_id(uint32_t tid) { return model_system_threads() ? tid : (uint32_t)pthread_self(); }

static void begins(const struct model_call *call) { model_callback(call, false); }

static void call(const struct model_call *call) {
    model_callback(call, true);
    if (!model_call_on(call->runtime, call->cbid)) return;
    model_lock_records();
    struct v12_API *record = model_slot(sizeof *record, 0);
    if (record) {
        record->kind = call->runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
        record->cbid = call->cbid;
        record->start = model_to_cupti(call->start);
        record->end = record->start + (call->end - call->start);
        record->processId = (uint32_t)getpid();
        record->threadId = thread_id(call->tid);
        record->correlationId = call->correlation;
        record->returnValue = (uint32_t)call->result;
    }
    model_unlock_records();
}

static void wait(const struct model_wait *wait) {
    if (!model_on(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION)) return;
    model_lock_records();
    struct v12_Synchronization *record = model_slot(model_record_size(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION), 0);
    if (record) {
        /* The newer record only has more behind it. */
        record->kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
        record->type = wait->type;
        record->start = model_to_cupti(wait->start);
        record->end = record->start + (wait->end - wait->start);
        record->correlationId = wait->correlation;
        record->contextId = wait->context;
        record->streamId = wait->stream;
        record->cudaEventId = wait->event;
    }
    model_unlock_records();
}

#define WRITE_MEMORY(type)                                                                                                     \
    do {                                                                                                                       \
        struct type *r = (struct type *)record;                                                                                \
        r->memoryOperationType = memory->came ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION                                \
                                              : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;                                  \
        r->memoryKind = memory->kind;                                                                                          \
        r->correlationId = memory->correlation;                                                                                \
        r->address = memory->at;                                                                                               \
        r->bytes = memory->bytes;                                                                                              \
        r->timestamp = model_to_cupti(memory->time);                                                                           \
        r->processId = (uint32_t)getpid();                                                                                     \
        r->deviceId = memory->device;                                                                                          \
        r->contextId = memory->context;                                                                                        \
        r->streamId = UINT32_MAX;                                                                                              \
    } while (0)

static void memory(const struct model_memory *memory) {
    if (!model_on(CUPTI_ACTIVITY_KIND_MEMORY2)) return;
    model_lock_records();
    CUpti_Activity *record = model_slot(model_record_size(CUPTI_ACTIVITY_KIND_MEMORY2), 0);
    if (record) {
        record->kind = CUPTI_ACTIVITY_KIND_MEMORY2;
        if (model_version() >= V13_0) WRITE_MEMORY(v13_Memory4);
        else if (model_version() >= V12_6) WRITE_MEMORY(v12_Memory4);
        else WRITE_MEMORY(v12_Memory3);
    }
    model_unlock_records();
}

void model_range(const struct model_range *range) {
    if (!model_on(CUPTI_ACTIVITY_KIND_MARKER)) return;
    model_lock_records();
    struct v12_Marker2 *record = model_slot(sizeof *record, 0);
    if (record) {
        record->kind = CUPTI_ACTIVITY_KIND_MARKER;
        record->flags = range->flags;
        record->timestamp = model_to_cupti(range->time);
        record->id = range->id;
        record->objectKind = 2; /* a thread */
        uint32_t whose[2] = {(uint32_t)getpid(), thread_id(range->tid)};
        memcpy(record->objectId, whose, sizeof whose);
        record->name = model_name(range->name);
        record->domain = model_name(range->domain);
    }
    model_unlock_records();
}

const struct model_hooks model_hooks = {correlation, begins, call, work, wait, memory};
