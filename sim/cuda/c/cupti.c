/* libcupti.so: the interface, the buffers, the worker. */
#define _GNU_SOURCE
#define MODEL_CUPTI
#include "cupti.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { KINDS = CUPTI_ACTIVITY_KIND_COUNT, CALLS = 1024, RESOURCES = 32 };

struct buffer {
    uint8_t *at;
    size_t size, used;
    uint64_t ready; /* when the last of its records is complete */
    uint32_t owner; /* the thread whose records it takes; 0: everybody's */
    struct buffer *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* What cuptiFinalize sets back. */
static struct {
    bool kind[KINDS], listed[KINDS], subscribed, working, stopping, asked;
    /* Calls chosen one by one: 1 on, 2 off. */
    uint8_t call[2][CALLS];
    /* The subscriber, and the calls of the driver and of the runtime of which it is notified. */
    CUpti_CallbackFunc callback;
    void *user;
    bool notified[2][CALLS], notified_of_resources[RESOURCES];
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    CUpti_TimestampCallbackFunc clock;
    uint32_t threads, period;
    size_t dropped;
    uint64_t device_buffer;
    pthread_t workers[2];
    bool started;
    /* Being filled, one for each thread that has something to tell; and full ones. */
    struct buffer *current, *full;
} state;

/* What the threads that made calls share, and the key of each one's own data: from the first use to cuptiFinalize, which frees it
 * first and deletes the key last. The end of a thread in between reads what is gone (CUPTI 13.0: CUDA-041 in docs/deviations/cuda.md).
 * CUPTI's own threads have data under that key, too, and are waited for meanwhile. */
static struct shared {
    char unused[0x18];
    atomic_uint threads, calls;
} *shared;
static pthread_key_t thread_key;
static char own_thread;

static void give_up_buffer(uint32_t owner);

static void thread_ends(void *data) {
    if (data == &own_thread) return;
    struct shared *volatile *at = &shared;
    atomic_fetch_sub(&(*at)->threads, 1);
    give_up_buffer((uint32_t)syscall(SYS_gettid));
}

void model_thread_calls(void) {
    pthread_mutex_lock(&lock);
    if (shared && state.working && !pthread_getspecific(thread_key)) {
        pthread_setspecific(thread_key, shared);
        atomic_fetch_add(&shared->threads, 1);
    }
    pthread_mutex_unlock(&lock);
}

uint64_t model_fault(const char *word, uint64_t otherwise) {
    const char *faults = getenv("CUPTI_MODEL");
    size_t length = strlen(word);
    while (faults && *faults) {
        if (!strncmp(faults, word, length)) {
            if (faults[length] == '=') return strtoull(faults + length + 1, 0, 10);
            if (!faults[length] || faults[length] == ',') return 1;
        }
        faults = strchr(faults, ',');
        if (faults) faults++;
    }
    return otherwise;
}

static void take_time(const char *word) {
    uint64_t ms = model_fault(word, 0);
    if (ms) usleep((useconds_t)(ms * 1000));
}

uint32_t model_version(void) { return (uint32_t)model_fault("version", MODEL_VERSION); }
bool model_on(uint32_t kind) { return state.kind[kind]; }
bool model_system_threads(void) { return state.threads == 1; }
void model_lock_records(void) { pthread_mutex_lock(&lock); }
void model_unlock_records(void) { pthread_mutex_unlock(&lock); }

bool model_call_on(bool runtime, uint32_t cbid) {
    uint8_t chosen = cbid < CALLS ? state.call[runtime][cbid] : 0;
    if (chosen) return chosen == 1;
    return state.kind[runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER];
}

static uint64_t clock_now(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A clock that was registered and is valid until CUPTI is used again after its end: 13.0 goes on with it until then (H100). */
static CUpti_TimestampCallbackFunc last_clock;
/* Its units in a nanosecond: PyTorch's profiler registers a counter of the processor's. */
static double units = 1;

/* CUPTI's own clock: the wall's, or the one that was registered. */
static uint64_t own_now(void) {
    CUpti_TimestampCallbackFunc clock = state.clock ? state.clock : last_clock;
    return clock ? clock() : clock_now(CLOCK_REALTIME);
}

/* Both clocks at one moment, read again where the processor was taken away in between. */
static void both_now(uint64_t *own, uint64_t *boot) {
    uint64_t before, after;
    int tries = 0;
    do {
        before = clock_now(CLOCK_BOOTTIME);
        *own = own_now();
        after = clock_now(CLOCK_BOOTTIME);
    } while (after - before > 3000 && ++tries < 100);
    *boot = before + (after - before) / 2;
}

static void measure_units(void) {
    uint64_t own[2], boot[2];
    both_now(&own[0], &boot[0]);
    while (clock_now(CLOCK_BOOTTIME) < boot[0] + 20000000)
        ;
    both_now(&own[1], &boot[1]);
    units = (double)(own[1] - own[0]) / (double)(boot[1] - boot[0]);
    if (units > 0.99 && units < 1.01) units = 1;
}

uint64_t model_to_cupti(uint64_t time) {
    uint64_t own, boot;
    both_now(&own, &boot);
    if (units == 1) return time + (own - boot);
    return own + (uint64_t)(int64_t)((double)(int64_t)(time - boot) * units);
}

uint64_t model_length(uint64_t ns) { return units == 1 ? ns : (uint64_t)((double)ns * units); }

void *model_slot(size_t size, uint64_t ready) {
    uint32_t owner = (uint32_t)syscall(SYS_gettid);
    struct buffer **at = &state.current;
    while (*at && (*at)->owner && (*at)->owner != owner) at = &(*at)->next;
    struct buffer *buffer = *at;
    if (buffer && buffer->used + size > buffer->size) {
        *at = buffer->next;
        buffer->next = state.full;
        state.full = buffer;
        buffer = 0;
        pthread_cond_broadcast(&changed);
    }
    if (!buffer && state.request && !(state.asked && model_fault("small", 0))) {
        uint8_t *memory = 0;
        size_t bytes = 0, most = 0;
        state.request(&memory, &bytes, &most);
        state.asked = true;
        if (memory && bytes >= size) {
            buffer = calloc(1, sizeof *buffer);
            if (!buffer) abort();
            *buffer = (struct buffer){memory, bytes, 0, 0, owner, state.current};
            state.current = buffer;
        }
    }
    if (!buffer) {
        state.dropped++;
        return 0;
    }
    void *slot = buffer->at + buffer->used;
    memset(slot, 0, size);
    buffer->used += size;
    if (buffer->ready < ready) buffer->ready = ready;
    return slot;
}

/* A thread that ends returns its buffer, whatever is in it (H100, 13.0: as many requests as ends). */
static void give_up_buffer(uint32_t owner) {
    pthread_mutex_lock(&lock);
    struct buffer **at = &state.current;
    while (*at && (*at)->owner != owner) at = &(*at)->next;
    struct buffer *buffer = *at;
    if (buffer) {
        *at = buffer->next;
        buffer->next = state.full;
        state.full = buffer;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
}

/* Takes from a list what can be returned: buffers of which all records are complete, or all. */
static struct buffer *take_from(struct buffer **at, struct buffer *taken, bool all) {
    uint64_t now = clock_now(CLOCK_BOOTTIME);
    while (*at) {
        struct buffer *buffer = *at;
        if (all || buffer->ready <= now) {
            *at = buffer->next;
            buffer->next = taken;
            taken = buffer;
        } else {
            at = &buffer->next;
        }
    }
    return taken;
}

static struct buffer *take(bool also_current, bool all) {
    struct buffer *taken = take_from(&state.full, 0, all);
    return also_current ? take_from(&state.current, taken, all) : taken;
}

static void deliver(struct buffer *buffers, CUpti_BuffersCallbackCompleteFunc complete) {
    while (buffers) {
        struct buffer *buffer = buffers;
        buffers = buffer->next;
        if (complete) complete(0, 0, buffer->at, buffer->size, buffer->used);
        free(buffer);
    }
}

/* CUPTI has a second thread that waits. */
static void *waiter(void *unused) {
    (void)unused;
    pthread_setspecific(thread_key, &own_thread);
    pthread_mutex_lock(&lock);
    while (!state.stopping) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Gives full buffers back; with a period, those that are being filled, too. */
static void *worker(void *unused) {
    uint64_t flushed = 0;
    (void)unused;
    pthread_setspecific(thread_key, &own_thread);
    pthread_mutex_lock(&lock);
    while (!state.stopping) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 5000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&changed, &lock, &until);
        uint64_t now = clock_now(CLOCK_MONOTONIC);
        bool due = state.period && now - flushed >= state.period * 1000000ull;
        if (due) flushed = now;
        struct buffer *buffers = take(due, false);
        CUpti_BuffersCallbackCompleteFunc complete = state.complete;
        pthread_mutex_unlock(&lock);
        deliver(buffers, complete);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

static const struct model_table *driver(void) {
    CUresult (*get)(const void **, const CUuuid *);
    const void *table = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return 0;
    *(void **)&get = dlsym(library, "cuGetExportTable");
    if (!get || get(&table, (const CUuuid *)MODEL_TABLE)) return 0;
    return table;
}

/* Whether kernels are recorded from here on. */
static void log_recording(int on) {
    const struct model_table *table = driver();
    if (table) table->log("recording on=%d\n", on);
}

/* Kernels are to be recorded one by one: the question whether another client records. */
static void log_asked(void) {
    const struct model_table *table = driver();
    if (table) table->log("asked kind=%d\n", CUPTI_ACTIVITY_KIND_KERNEL);
}

static void log_subscribed(int on) {
    const struct model_table *table = driver();
    if (table) table->log("subscribed on=%d\n", on);
}

/* Whether calls are notified, by their numbers. The driver's callback reads it once `ready` is set, which CUPTI 13.5 does before it
 * allocates the table (CUDA-043 in docs/deviations/cuda.md). start_ms=N: the table comes N ms later, otherwise it comes first. */
static struct {
    atomic_bool ready;
    _Atomic(uint32_t *) notified;
} table_of_calls;

static void make_table_of_calls(void) {
    bool early = model_fault("start_ms", 0);
    if (early) atomic_store(&table_of_calls.ready, true);
    take_time("start_ms");
    uint32_t *table = calloc(CALLS, sizeof *table);
    if (!table) abort();
    atomic_store(&table_of_calls.notified, table);
    atomic_store(&table_of_calls.ready, true);
}

/* CUPTI 13.5 has a list of functions for each call, and makes it when a kind is first enabled: it stores the list's end, then its start,
 * and the callback reads both without a lock (CUDA-044 in docs/deviations/cuda.md). list_us=N: N us lie between. */
static atomic_bool list_is_half_made;

static void make_lists(void) {
    uint64_t us = model_fault("list_us", 0), end = clock_now(CLOCK_MONOTONIC) + us * 1000;
    atomic_store(&list_is_half_made, us > 0);
    while (clock_now(CLOCK_MONOTONIC) < end) {}
    atomic_store(&list_is_half_made, false);
}

/* CUPTI keeps data with each context, which cuptiFinalize clears where the driver lists the context: not while a thread is still in the
 * call that makes it. The next use takes what it finds there for its own (CUPTI 13.0 reads at address 0 then: CUDA-045). */
static atomic_ulong life;

static void about_context(uint32_t cbid, uint64_t *tools) {
    uint64_t own = atomic_load(&life);
    if (cbid == 1) *tools = own;
    if (*tools && *tools != own) abort();
}

/* What a subscriber gets for a node of a graph that was made. */
struct graph_data {
    CUgraph graph, original_graph;
    CUgraphNode node, original_node;
    uint32_t type;
    CUgraphNode dependency;
    CUgraphExec exec;
};
struct resource_data {
    CUcontext context;
    CUstream stream;
    const struct graph_data *about;
};

static void about_node(uint32_t cbid, const struct model_made_node *made) {
    pthread_mutex_lock(&lock);
    CUpti_CallbackFunc callback = state.notified_of_resources[cbid] ? state.callback : 0;
    void *user = state.user;
    pthread_mutex_unlock(&lock);
    if (!callback) return;
    struct graph_data about = {.node = made->node, .original_node = made->original, .type = made->type};
    struct resource_data data = {.about = &about};
    callback(user, 3, cbid, &data);
}

EXPORT CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
    if (!node || !id) return CUPTI_ERROR_INVALID_PARAMETER;
    *id = *node;
    return CUPTI_SUCCESS;
}

/* What the driver calls at each call of CUDA. cuptiFinalize frees what it uses without waiting for the threads in it (CUPTI 13.0 and
 * 13.5: CUDA-042 in docs/deviations/cuda.md). callback_ms=N: of each thread's calls every fourth stays here for N ms. */
static int called(void *data, uint32_t domain, uint32_t cbid, const void *arguments) {
    static __thread unsigned calls;
    (void)data;
    if (atomic_load(&list_is_half_made)) abort();
    if (domain == 2) about_context(cbid, (uint64_t *)arguments);
    if (domain == 3) about_node(cbid, arguments);
    if (atomic_load(&table_of_calls.ready)) {
        uint32_t *volatile table = atomic_load(&table_of_calls.notified);
        (void)*(volatile uint32_t *)(table + cbid % CALLS);
    }
    if (!model_fault("callback_ms", 0) || ++calls % 4) return 0;
    take_time("callback_ms");
    struct shared *volatile *at = &shared;
    atomic_fetch_add(&(*at)->calls, 1);
    return 0;
}

/* CUPTI's first use of any kind: the driver has its callback from here on. With the lock. */
static CUptiResult start(void) {
    if (state.started) return CUPTI_SUCCESS;
    const struct model_table *table = driver();
    if (!table) return CUPTI_ERROR_NOT_INITIALIZED;
    if (!table->hook(&model_hooks)) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    shared = calloc(1, sizeof *shared);
    if (!shared) abort();
    state.started = true;
    atomic_fetch_add(&life, 1);
    table->subscribe(called, &state);
    return CUPTI_SUCCESS;
}

/* The first use that records or notifies: makes the threads, which have the name of the one that comes here; all stay until
 * cuptiFinalize. With the lock. */
static CUptiResult begin(void) {
    if (state.working) return CUPTI_SUCCESS;
    CUptiResult said = start();
    if (said) return said;
    state.stopping = false;
    if (!state.clock) last_clock = 0, units = 1;
    make_table_of_calls();
    if (pthread_key_create(&thread_key, thread_ends)) abort();
    if (pthread_create(&state.workers[0], 0, worker, 0) || pthread_create(&state.workers[1], 0, waiter, 0)) abort();
    state.working = true;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSupportedDomains(size_t *count, const int **domains) {
    static const int all[] = {1, 2, 3};
    pthread_mutex_lock(&lock);
    CUptiResult said = start();
    pthread_mutex_unlock(&lock);
    if (!said) *count = sizeof all / sizeof *all, *domains = all;
    return said;
}

EXPORT CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = model_version();
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    static __thread char said[64];
    snprintf(said, sizeof said, "CUPTI_MODEL_STATUS_%d", result);
    *text = said;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetErrorMessage(CUptiResult result, const char **text) { return cuptiGetResultString(result, text); }

EXPORT CUptiResult cuptiGetTimestamp(uint64_t *time) {
    *time = own_now();
    return CUPTI_SUCCESS;
}

/* What a subscriber gets for a call; the part that the model knows. */
struct callback_data {
    uint32_t site;
    const char *function;
    const void *parameters, *result;
    const char *symbol;
    CUcontext context;
    uint32_t context_id;
    uint64_t *data;
    uint32_t correlation;
};

void model_callback(const struct model_call *call, bool ends) {
    pthread_mutex_lock(&lock);
    bool chosen = call->cbid < CALLS && state.notified[call->runtime][call->cbid];
    CUpti_CallbackFunc callback = chosen ? state.callback : 0;
    void *user = state.user;
    pthread_mutex_unlock(&lock);
    if (!callback) return;
    struct callback_data data = {.site = ends, .function = call->name, .correlation = call->correlation};
    callback(user, call->runtime ? 2 : 1, call->cbid, &data);
}

static CUptiResult subscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user) {
    if (!subscriber || !callback) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    bool taken = state.subscribed || model_fault("subscribed", 0);
    if (!taken) state.subscribed = true, state.callback = callback, state.user = user;
    pthread_mutex_unlock(&lock);
    if (taken) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    *subscriber = (CUpti_SubscriberHandle)&state.subscribed;
    log_subscribed(1);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user) {
    return subscribe(subscriber, callback, user);
}

#if MODEL_VERSION >= 130000
EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user, void *params) {
    (void)params;
    return subscribe(subscriber, callback, user);
}
#endif

EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
    if (subscriber != (CUpti_SubscriberHandle)&state.subscribed) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    state.subscribed = false;
    state.callback = 0;
    memset(state.notified, 0, sizeof state.notified);
    memset(state.notified_of_resources, 0, sizeof state.notified_of_resources);
    pthread_mutex_unlock(&lock);
    log_subscribed(0);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, int domain, CUpti_CallbackId id) {
    bool known = ((domain == 1 || domain == 2) && id < CALLS) || (domain == 3 && id < RESOURCES);
    if (subscriber != (CUpti_SubscriberHandle)&state.subscribed || !known) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    CUptiResult said = begin();
    if (!said) *(domain == 3 ? &state.notified_of_resources[id] : &state.notified[domain == 2][id]) = enable;
    pthread_mutex_unlock(&lock);
    return said;
}

EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                  CUpti_BuffersCallbackCompleteFunc complete) {
    if (!request || !complete) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    state.request = request;
    state.complete = complete;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback) {
    if (!callback) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    state.clock = callback;
    measure_units();
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityEnable(uint32_t kind) {
    if (kind >= KINDS) return CUPTI_ERROR_INVALID_KIND;
    bool kernels = kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    CUptiResult said = kernels ? (CUptiResult)model_fault("enable", 0) : CUPTI_SUCCESS;
    take_time("enable_ms");
    if (said) return said;
    pthread_mutex_lock(&lock);
    /* Kernels are recorded in one of two ways at a time: a request for the other one fails because another client records. */
    bool other = (kind == CUPTI_ACTIVITY_KIND_KERNEL && state.kind[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]) ||
                 (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && state.kind[CUPTI_ACTIVITY_KIND_KERNEL]);
    said = other ? CUPTI_ERROR_NOT_COMPATIBLE : begin();
    if (!said && !state.listed[kind]) make_lists();
    if (!said) state.kind[kind] = state.listed[kind] = true;
    if (!said && kernels) log_recording(1);
    if (kind == CUPTI_ACTIVITY_KIND_KERNEL) log_asked();
    /* As if a thread launched one at this moment: its record goes into a buffer of whoever is registered now. */
    if (!said && kind == CUPTI_ACTIVITY_KIND_KERNEL && model_fault("launches", 0)) {
        model_kernel_meanwhile();
        if (state.current) state.current->owner = 0;
    }
    pthread_mutex_unlock(&lock);
    return said;
}

EXPORT CUptiResult cuptiActivityDisable(uint32_t kind) {
    if (kind >= KINDS) return CUPTI_ERROR_INVALID_KIND;
    pthread_mutex_lock(&lock);
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && state.kind[kind]) log_recording(0);
    state.kind[kind] = false;
    /* CUPTI 13.0 takes threads for being inside a call afterwards, now and then (docs/sources.md#cupti); here, always and all. */
    bool calls = kind == CUPTI_ACTIVITY_KIND_DRIVER || kind == CUPTI_ACTIVITY_KIND_RUNTIME;
    if (calls && memchr(state.call[0], 2, CALLS)) atomic_store(&model_ids_stand_still, true);
    if (kind == CUPTI_ACTIVITY_KIND_DRIVER) memset(state.call[0], 0, CALLS);
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME) memset(state.call[1], 0, CALLS);
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

static CUptiResult choose(bool runtime, CUpti_CallbackId id, uint8_t enable) {
    if (id >= CALLS) return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    CUptiResult said = begin();
    if (!said) state.call[runtime][id] = enable ? 1 : 2;
    pthread_mutex_unlock(&lock);
    return said;
}

EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) { return choose(true, id, enable); }
EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) { return choose(false, id, enable); }

#ifndef MODEL_WITHOUT_HW_TRACE
/* The hardware's timing of kernels, as NVIDIA describes it: on a chip that has it (`hw_trace`), while there is no context, and until
 * the process ends. 13.0 says NOT_INITIALIZED before cuInit, and yes where it is told to switch off what is off (H200). */
EXPORT CUptiResult cuptiActivityEnableHWTrace(uint8_t enable) {
    static bool on;
    const struct model_table *table = driver();
    uint32_t contexts = table ? table->contexts() : 0;
    pthread_mutex_lock(&lock);
    CUptiResult said = state.working ? CUPTI_SUCCESS : CUPTI_ERROR_NOT_INITIALIZED;
    if (!said && enable && (!model_fault("hw_trace", 0) || (contexts && !on))) said = CUPTI_ERROR_NOT_SUPPORTED;
    if (!said && enable) on = true;
    if (table) table->log("hw_trace enable=%u said=%d contexts=%u on=%d\n", enable, said, contexts, on);
    pthread_mutex_unlock(&lock);
    return said;
}
#endif

EXPORT CUptiResult cuptiActivityConfigureUnifiedMemoryCounter(void *config, uint32_t count) {
    (void)config, (void)count;
    return CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED;
}

/* An incomplete record that is asked for all the same has no end. */
static void without_ends(struct buffer *buffers) {
    uint64_t now = own_now();
    for (; buffers; buffers = buffers->next) {
        for (size_t at = 0; at < buffers->used;) {
            CUpti_Activity *record = (CUpti_Activity *)(buffers->at + at);
            size_t size = model_record_size(record->kind);
            /* The end is at the same place in kernels, copies and fills. */
            struct v12_Kernel9 *kernel = (struct v12_Kernel9 *)record;
            bool of_device = record->kind <= CUPTI_ACTIVITY_KIND_KERNEL || record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ||
                             record->kind == CUPTI_ACTIVITY_KIND_MEMCPY2;
            if (of_device && kernel->end > now) kernel->end = 0;
            at += size ? size : sizeof(struct v12_API);
        }
    }
}

_Static_assert(offsetof(struct v12_Kernel9, end) == offsetof(struct v12_Memset4, end), "");
_Static_assert(offsetof(struct v12_Kernel9, end) == offsetof(struct v12_Memcpy6, end), "");
_Static_assert(offsetof(struct v12_Kernel9, end) == offsetof(struct v12_MemcpyPtoP4, end), "");

EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    take_time("flush_ms");
    pthread_mutex_lock(&lock);
    if (!state.complete) {
        pthread_mutex_unlock(&lock);
        return CUPTI_ERROR_INVALID_OPERATION;
    }
    struct buffer *buffers = take(true, flag & 1);
    CUpti_BuffersCallbackCompleteFunc complete = state.complete;
    pthread_mutex_unlock(&lock);
    if (flag & 1) without_ends(buffers);
    deliver(buffers, complete);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityFlushPeriod(uint32_t ms) {
    pthread_mutex_lock(&lock);
    state.period = ms;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    if (!buffer || !record) return CUPTI_ERROR_INVALID_PARAMETER;
    size_t at = 0;
    if (*record) {
        size_t size = model_record_size((*record)->kind);
        at = (size_t)((uint8_t *)*record - buffer) + (size ? size : sizeof(struct v12_API));
    }
    if (at >= valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    uint64_t broken = model_fault("next", 0);
    if (broken && at > 3 * sizeof(struct v12_API)) return (CUptiResult)broken;
    *record = (CUpti_Activity *)(buffer + at);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    pthread_mutex_lock(&lock);
    *dropped = state.dropped;
    state.dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

/* One attribute is kept, the size of a device buffer: the model has no device buffers. */
EXPORT CUptiResult cuptiActivityGetAttribute(uint32_t attribute, size_t *size, void *value) {
    if (attribute) return CUPTI_ERROR_NOT_SUPPORTED;
    if (*size < sizeof state.device_buffer) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
    uint64_t bytes = state.device_buffer ? state.device_buffer : 3200000;
    memcpy(value, &bytes, sizeof bytes);
    *size = sizeof bytes;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value) {
    if (attribute) return CUPTI_ERROR_NOT_SUPPORTED;
    if (*size < sizeof state.device_buffer) return CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT;
    memcpy(&state.device_buffer, value, sizeof state.device_buffer);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSetThreadIdType(uint32_t type) {
    if (type > 1) return CUPTI_ERROR_NOT_SUPPORTED;
    state.threads = type;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetThreadIdType(uint32_t *type) {
    *type = state.threads;
    return CUPTI_SUCCESS;
}

#ifndef MODEL_WITHOUT_FINALIZE
/* Undoes everything: hooks, thread, callbacks, names, the subscriber. Records that were not flushed are gone; their
 * buffers are returned as empty ones. */
EXPORT CUptiResult cuptiFinalize(void) {
    take_time("finalize_ms");
    pthread_mutex_lock(&lock);
    bool working = state.working, started = state.started;
    memset(state.kind, 0, sizeof state.kind);
    memset(state.call, 0, sizeof state.call);
    state.stopping = true;
    if (started && driver()) driver()->subscribe(0, 0), driver()->forget(atomic_load(&life));
    atomic_store(&table_of_calls.ready, false);
    free(atomic_exchange(&table_of_calls.notified, 0));
    free(shared);
    shared = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    take_time("teardown_ms");
    const struct model_table *table = started ? driver() : 0;
    if (table) table->hook(0);
    if (table) table->log("finalize done=1\n");
    if (working) {
        for (int i = 0; i < 2; i++) pthread_join(state.workers[i], 0);
        pthread_key_delete(thread_key);
    }
    pthread_mutex_lock(&lock);
    atomic_store(&model_ids_stand_still, false);
    struct buffer *buffers = take(true, true);
    for (struct buffer *buffer = buffers; buffer; buffer = buffer->next) buffer->used = 0;
    CUpti_BuffersCallbackCompleteFunc complete = state.complete;
    if (state.clock) last_clock = state.clock;
    memset(&state, 0, sizeof state);
    pthread_mutex_unlock(&lock);
    deliver(buffers, complete);
    model_forget_names();
    return CUPTI_SUCCESS;
}
#endif
