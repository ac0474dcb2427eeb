/* A tool that is attached and detached again and again: a context with records of HIP calls. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

/* It could not start its context: another thread had destroyed its buffer, whose number it can guess. */
int refused;

static uint64_t context, buffer;
static int (*start)(uint64_t);

static void records(uint64_t c, uint64_t b, void *headers, size_t count, void *data, uint64_t dropped) {
    (void)c, (void)b, (void)headers, (void)count, (void)data, (void)dropped;
}

static int initialize(void *finalize, void *data) {
    (void)finalize, (void)data;
    int (*make)(uint64_t *) = dlsym(RTLD_DEFAULT, "rocprofiler_create_context");
    int (*make_buffer)(uint64_t, uint64_t, uint64_t, int, void *, void *, uint64_t *) = dlsym(RTLD_DEFAULT, "rocprofiler_create_buffer");
    int (*trace)(uint64_t, int, const int *, size_t, uint64_t) = dlsym(RTLD_DEFAULT, "rocprofiler_configure_buffer_tracing_service");
    start = dlsym(RTLD_DEFAULT, "rocprofiler_start_context");
    enum { HIP_CALLS = 5, LOSSLESS = 2 };
    return make(&context) || make_buffer(context, 4096, 2048, LOSSLESS, records, NULL, &buffer) || trace(context, HIP_CALLS, NULL, 0, buffer);
}

static int attached(void *finalize, uint64_t *contexts, uint64_t count, void *data) {
    (void)finalize, (void)contexts, (void)count, (void)data;
    int status = start(context);
    if (status) refused = 1;
    return status;
}
static void detached(void *data) { (void)data; }

static struct {
    size_t size;
    void *initialize, *finalize, *data;
} result = {sizeof result, initialize, NULL, NULL};
static struct {
    size_t size;
    void *attach, *detach, *data;
} attach_result = {sizeof attach_result, attached, detached, NULL};

void *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority, void *client) {
    (void)version, (void)text, (void)priority, (void)client;
    return &result;
}
void *rocprofiler_configure_attach(uint32_t version, const char *text, uint32_t priority, void *client) {
    (void)version, (void)text, (void)priority, (void)client;
    return &attach_result;
}
