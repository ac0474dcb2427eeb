/* libcuda.so.1: the clock, the log, the hooks, the devices, the driver's own threads. */
#define _GNU_SOURCE
#define MODEL_DRIVER
#include "model.h"
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t model_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool initialised;
static int log_file = -1;
static uint64_t kernel_ns = 5000, long_ns;
static unsigned long long_every; // 0: no kernel is longer than the others
static bool log_calls;
static _Atomic(const struct model_hooks *) hooks;
static atomic_uint users, generation;
static __thread struct {
    uint32_t depth, correlation, generation;
} nest;

uint64_t model_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t model_tid(void) {
    static __thread uint32_t tid;
    if (!tid) tid = (uint32_t)syscall(SYS_gettid);
    return tid;
}

uint64_t model_kernel_ns(void) {
    static unsigned long launched;
    if (!long_every) return kernel_ns;
    return __atomic_add_fetch(&launched, 1, __ATOMIC_RELAXED) % long_every ? kernel_ns : long_ns;
}

void model_log(const char *format, ...) {
    char line[1024];
    va_list args;
    if (log_file < 0) return;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (size < 0 || (size_t)size >= sizeof line || write(log_file, line, (size_t)size) != size) abort();
}

const struct model_hooks *model_take_hooks(void) {
    atomic_fetch_add(&users, 1);
    const struct model_hooks *there = atomic_load(&hooks);
    if (!there) atomic_fetch_sub(&users, 1);
    return there;
}

void model_give_hooks(void) { atomic_fetch_sub(&users, 1); }

static bool hook(const struct model_hooks *wanted) {
    const struct model_hooks *none = 0;
    if (wanted) {
        atomic_fetch_add(&generation, 1);
        return atomic_compare_exchange_strong(&hooks, &none, wanted);
    }
    atomic_store(&hooks, 0);
    while (atomic_load(&users)) usleep(50);
    return true;
}

/* As NVIDIA's driver keeps it: the function's address is the only word of libcuda's data that points into libcupti's code. */
static struct {
    void *zero;
    _Atomic(model_callback_t) function;
    void *_Atomic data;
    uint64_t state;
} subscriber;

static void subscribe(model_callback_t function, void *data) {
    if (function) atomic_store(&subscriber.data, data);
    atomic_store(&subscriber.function, function);
}

void model_notify(uint32_t domain, uint32_t cbid, const void *arguments) {
    model_callback_t function = atomic_load(&subscriber.function);
    if (function) function(atomic_load(&subscriber.data), domain, cbid, arguments);
}

EXPORT void model_enter(struct model_call *call, bool runtime, uint32_t cbid, const char *name) {
    *call = (struct model_call){.runtime = runtime, .cbid = cbid, .name = name, .tid = model_tid()};
    call->generation = atomic_load(&generation);
    model_notify(6, cbid, call);
    if (!nest.depth++ || nest.generation != call->generation) {
        const struct model_hooks *there = model_take_hooks();
        nest.correlation = there ? there->correlation() : 0;
        nest.generation = call->generation;
        if (there) model_give_hooks();
    }
    call->correlation = nest.correlation;
    const struct model_hooks *there = call->correlation ? model_take_hooks() : 0;
    if (there) {
        there->begins(call);
        model_give_hooks();
    }
    call->start = model_now();
}

EXPORT int model_exit(struct model_call *call, int result) {
    model_notify(6, call->cbid, call);
    call->end = model_now();
    call->result = result;
    nest.depth--;
    if (log_calls)
        model_log("call tid=%u runtime=%d cbid=%u name=%s correlation=%u result=%d start=%lu end=%lu\n", call->tid, call->runtime,
                  call->cbid, call->name, call->correlation, result, call->start, call->end);
    if (!call->correlation) return result;
    const struct model_hooks *there = model_take_hooks();
    if (!there) return result;
    if (call->generation == atomic_load(&generation)) there->call(call);
    model_give_hooks();
    return result;
}

uint32_t model_correlation(void) { return nest.correlation; }

static atomic_int parked_threads;

/* Threads of the driver's own, in poll: one from its initialisation on, one more from the first context on. */
static void *parked(void *name) {
    pthread_setname_np(pthread_self(), name);
    struct pollfd never = {.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
    atomic_fetch_add(&parked_threads, 1);
    for (;;) poll(&never, 1, -1);
    return 0;
}

static void park(const char *name) {
    pthread_t thread;
    int before = atomic_load(&parked_threads);
    if (pthread_create(&thread, 0, parked, (void *)name) || pthread_detach(thread)) abort();
    while (atomic_load(&parked_threads) == before) usleep(50);
}

void model_first_context(void) { park("cuda-EvtHandlr"); }

EXPORT CUresult cuInit(unsigned flags) {
    CALL(cuInit);
    if (flags) DONE(CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&model_lock);
    if (!initialised) {
        const char *path = getenv("CUDA_MODEL_LOG"), *ns = getenv("CUDA_MODEL_KERNEL_NS"), *more = getenv("CUDA_MODEL_LONG_KERNEL");
        if (ns) kernel_ns = strtoull(ns, 0, 10);
        if (more) sscanf(more, "%lu:%lu", &long_every, &long_ns);
        log_calls = getenv("CUDA_MODEL_CALLS") != 0;
        if (path) log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (path && log_file < 0) {
            pthread_mutex_unlock(&model_lock);
            DONE(CUDA_ERROR_INVALID_VALUE);
        }
        park("cuda00001400006");
        initialised = true;
    }
    pthread_mutex_unlock(&model_lock);
    DONE(CUDA_SUCCESS);
}

bool model_ready(void) { return initialised; }

EXPORT CUresult cuDriverGetVersion(int *version) {
    const char *told = getenv("CUDA_MODEL_DRIVER");
    CALL(cuDriverGetVersion);
    *version = told ? atoi(told) : 13000;
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuGetErrorName(CUresult error, const char **name) {
    CALL(cuGetErrorName);
    static const struct {
        CUresult error;
        const char *name;
    } names[] = {{CUDA_SUCCESS, "CUDA_SUCCESS"},
                 {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                 {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
                 {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
                 {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                 {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].error != error) continue;
        *name = names[i].name;
        DONE(CUDA_SUCCESS);
    }
    *name = 0;
    DONE(CUDA_ERROR_INVALID_VALUE);
}

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    static const struct model_table ours = {sizeof ours, hook, model_log, model_contexts, subscribe, model_forget};
    if (memcmp(id, MODEL_TABLE, sizeof *id)) return CUDA_ERROR_INVALID_VALUE;
    *table = &ours;
    return CUDA_SUCCESS;
}

enum { DEVICES = 2 };

EXPORT CUresult cuDeviceGetCount(int *count) {
    CALL(cuDeviceGetCount);
    if (!initialised) DONE(CUDA_ERROR_NOT_INITIALIZED);
    *count = DEVICES;
    DONE(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CALL(cuDeviceGet);
    if (!initialised) DONE(CUDA_ERROR_NOT_INITIALIZED);
    if (ordinal < 0 || ordinal >= DEVICES) DONE(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    DONE(CUDA_SUCCESS);
}

static CUresult known(CUdevice device) {
    if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
    return device < 0 || device >= DEVICES ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    CALL(cuDeviceGetName);
    CUresult error = known(device);
    if (!error) snprintf(name, (size_t)size, "Midair Stand-in GPU %d", device);
    DONE(error);
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device) {
    CUresult error = known(device);
    if (error) return error;
    for (int i = 0; i < 16; i++) uuid->bytes[i] = (char)(16 * (device + 1) + i);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    CALL(cuDeviceGetUuid);
    DONE(uuid_of(uuid, device));
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    CALL(cuDeviceGetUuid_v2);
    DONE(uuid_of(uuid, device));
}

EXPORT CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device) {
    CALL(cuDeviceTotalMem_v2);
    CUresult error = known(device);
    if (!error) *bytes = (size_t)(8 * (device + 1)) << 30;
    DONE(error);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    /* Numbers of CUdevice_attribute. */
    static const struct {
        int attribute, value;
    } values[] = {{1, 1024},  {2, 1024},     {3, 1024},     {4, 64},         {5, 2147483647}, {6, 65535},    {7, 65535},
                  {8, 49152}, {10, 32},      {12, 65536},   {13, 1980000},   {16, 132},       {36, 2619000}, {37, 6144},
                  {38, 62914560}, {39, 2048}, {75, 9},      {76, 0},         {81, 233472},    {82, 65536},   {50, 0}};
    CALL(cuDeviceGetAttribute);
    CUresult error = known(device);
    if (error) DONE(error);
    if (attribute == 33) { /* PCI bus */
        *value = 0x18 + device;
        DONE(CUDA_SUCCESS);
    }
    if (attribute == 34) { /* PCI device */
        *value = 0;
        DONE(CUDA_SUCCESS);
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (values[i].attribute != attribute) continue;
        *value = values[i].value;
        DONE(CUDA_SUCCESS);
    }
    DONE(CUDA_ERROR_INVALID_VALUE);
}
