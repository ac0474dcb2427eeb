/* A tool as a user writes one: contexts, buffers and callbacks. It writes what it sees as lines into `client_log`. */
#define _GNU_SOURCE
#include "sdk.h"
#include "layout.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char client_log[1 << 16];
int client_refuse_attach;
rocprofiler_context_id_t client_contexts[4];
rocprofiler_buffer_id_t client_buffers[4];
static rocprofiler_callback_thread_t worker;
static client_finalize end_me;
static rocprofiler_client_id_t *me;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list list;
    pthread_mutex_lock(&lock);
    size_t used = strlen(client_log);
    va_start(list, format);
    vsnprintf(client_log + used, sizeof client_log - used, format, list);
    va_end(list);
    pthread_mutex_unlock(&lock);
}
/* A status by its short name. */
static const char *name(int status) {
    const char *text = rocprofiler_get_status_name(status);
    return text ? text + strlen("ROCPROFILER_STATUS_") : "?";
}

static int argument(int kind, int32_t operation, uint32_t number, const void *address, int32_t indirection, const char *type,
                    const char *name, const char *value, void *data) {
    (void)kind; (void)operation; (void)address;
    say(" %u:%s(%d) %s=%s", number, type, indirection, name, value);
    return data != &lock;
}

static void records(rocprofiler_context_id_t context, rocprofiler_buffer_id_t buffer, rocprofiler_record_header_t **headers,
                    size_t count, void *data, uint64_t dropped) {
    char thread[32];
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    say("callback context=%lu buffer=%lu data=%s count=%zu dropped=%lu worker=%d busy=%s\n", context.handle, buffer.handle,
        (const char *)data, count, dropped, strcmp(thread, "midair-buffer") == 0, name(rocprofiler_flush_buffer(buffer)));
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = headers[i]->hash_or_category_and_kind;
        unsigned category = (unsigned)hash, kind = (unsigned)(hash >> 32);
        const char *operation = "?";
        uint64_t length = 0;
        const rocprofiler_buffer_tracing_hsa_api_record_t *any = headers[i]->payload;
        rocprofiler_query_buffer_tracing_kind_operation_name(any->kind, any->operation, &operation, &length);
        say("record category=%u kind=%u/%d %s size=%lu length=%d", category, kind, any->kind, operation, any->size,
            length == strlen(operation));
        if (kind == 21) {
            const rocprofiler_buffer_tracing_hip_api_ext_record_t *r = headers[i]->payload;
            say(" corr=%lu/%lu/%lu t=%lu-%lu tid=%lu ret=%d", r->correlation_id.internal, r->correlation_id.external.value,
                r->correlation_id.ancestor, r->start_timestamp, r->end_timestamp, r->thread_id, r->retval.hipError_t_retval);
            if (strcmp(operation, "hipLaunchKernel") == 0)
                say(" f=%p grid=%u,%u,%u block=%u,%u,%u args=%p shared=%zu stream=%p", r->args.hipLaunchKernel.function_address,
                    r->args.hipLaunchKernel.numBlocks.x, r->args.hipLaunchKernel.numBlocks.y,
                    r->args.hipLaunchKernel.numBlocks.z, r->args.hipLaunchKernel.dimBlocks.x,
                    r->args.hipLaunchKernel.dimBlocks.y, r->args.hipLaunchKernel.dimBlocks.z,
                    (void *)r->args.hipLaunchKernel.args, r->args.hipLaunchKernel.sharedMemBytes, r->args.hipLaunchKernel.stream);
            if (strcmp(operation, "hipLaunchKernel") == 0 && r->correlation_id.internal == 1)
                say(" args %s", name(rocprofiler_iterate_buffer_tracing_record_args(*headers[i], argument, &lock)));
            else if (strcmp(operation, "hipLaunchKernel") != 0)
                say(" ptr=%p size=%zu", (void *)r->args.hipMalloc.ptr, r->args.hipMalloc.size);
        } else if (kind == 11) {
            const rocprofiler_buffer_tracing_kernel_dispatch_record_t *r = headers[i]->payload;
            say(" corr=%lu t=%lu-%lu tid=%lu agent=%lu queue=%lu kernel=%lu dispatch=%lu private=%u group=%u wg=%u,%u,%u grid=%u,%u,%u",
                r->correlation_id.internal, r->start_timestamp, r->end_timestamp, r->thread_id, r->dispatch_info.agent_id.handle,
                r->dispatch_info.queue_id.handle, r->dispatch_info.kernel_id, r->dispatch_info.dispatch_id,
                r->dispatch_info.private_segment_size, r->dispatch_info.group_segment_size, r->dispatch_info.workgroup_size.x,
                r->dispatch_info.workgroup_size.y, r->dispatch_info.workgroup_size.z, r->dispatch_info.grid_size.x,
                r->dispatch_info.grid_size.y, r->dispatch_info.grid_size.z);
        } else if (kind == 10) {
            const rocprofiler_buffer_tracing_memory_copy_record_t *r = headers[i]->payload;
            say(" corr=%lu t=%lu-%lu tid=%lu dst=%lu src=%lu bytes=%lu to=%lx from=%lx", r->correlation_id.internal,
                r->start_timestamp, r->end_timestamp, r->thread_id, r->dst_agent_id.handle, r->src_agent_id.handle, r->bytes,
                r->dst_address, r->src_address);
        } else {
            if (kind == 1) say(" args %s", name(rocprofiler_iterate_buffer_tracing_record_args(*headers[i], argument, &lock)));
            say(" corr=%lu/%lu/%lu t=%lu-%lu tid=%lu", any->correlation_id.internal, any->correlation_id.external.value,
                any->correlation_id.ancestor, any->start_timestamp, any->end_timestamp, any->thread_id);
        }
        say("\n");
    }
}

static void code_object(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t *user_data, void *data) {
    say("code object context=%lu kind=%d phase=%d user=%lu data=%s ", record.context_id.handle, record.kind, record.phase,
        user_data->value, (const char *)data);
    if (record.operation == 1) {
        const rocprofiler_callback_tracing_code_object_load_data_t *d = record.payload;
        say("load size=%lu id=%lu hsa=%lx uri=%s base=%lx+%lx delta=%ld storage=%d memory=%lx+%lx\n", d->size, d->code_object_id,
            d->hsa_agent, d->uri, d->load_base, d->load_size, d->load_delta, d->storage_type, d->memory_base, d->memory_size);
    } else {
        const rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t *d = record.payload;
        say("symbol size=%lu id=%lu of=%lu name=%s object=%lx code=%lx sgpr=%u vgpr=%u accum=%u\n", d->size, d->kernel_id,
            d->code_object_id, d->kernel_name, d->kernel_object, d->kernel_address, d->sgpr_count, d->arch_vgpr_count,
            d->accum_vgpr_count);
    }
}

static int count_one(int kind, void *data) { (void)kind; ++*(int *)data; return 0; }
static int stop_at_three(int kind, int32_t operation, void *data) { (void)kind; *(int *)data = operation; return operation == 3; }
static int agents(int version, const void **list, size_t count, void *data) {
    say("agents version=%d count=%zu same=%d\n", version, count, data == &lock);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *agent = list[i];
        say("agent size=%lu type=%d name=%d\n", *(uint64_t *)agent, *(int *)(agent + AGENT_TYPE), **(char **)(agent + AGENT_NAME) != 0);
    }
    return 0;
}
static void thread_notice_cb(int library, void *data) { say("thread %s library=%d\n", (const char *)data, library); }
static void before_cb(int library, void *data) { (void)data; thread_notice_cb(library, "before"); }
static void after_cb(int library, void *data) { (void)data; thread_notice_cb(library, "after"); }

static int initialize(client_finalize finalize, void *data) {
    const int32_t only[] = {1, 99999};
    int32_t launch = -1;
    const char *text;
    int status, kinds = 0, last = -1;
    uint64_t time = 0, tid = 0;
    end_me = finalize;
    rocprofiler_is_initialized(&status);
    say("initialize data=%s initialized=%d attachment=%d\n", (const char *)data, status, rocprofiler_is_current_client_attachment());
    for (int i = 0; i < 4; i++) say("context %s\n", name(rocprofiler_create_context(&client_contexts[i])));
    for (int32_t i = 0; rocprofiler_query_buffer_tracing_kind_operation_name(21, i, &text, NULL) == 0; i++)
        if (strcmp(text, "hipLaunchKernel") == 0) launch = i;

    rocprofiler_at_internal_thread_create(before_cb, after_cb, 1, NULL);
    say("thread %s\n", name(rocprofiler_create_callback_thread(&worker)));
    /* 0: HIP calls with arguments and HSA calls; 1: kernels and copies; 2: launches only, small, on a thread of its own; 3: code objects. */
    say("buffer %s\n", name(rocprofiler_create_buffer(client_contexts[0], 4096, 4096, 2, records, "calls", &client_buffers[0])));
    say("buffer %s\n", name(rocprofiler_create_buffer(client_contexts[1], 4096, 1, 1, records, "device", &client_buffers[1])));
    say("buffer %s\n", name(rocprofiler_create_buffer(client_contexts[2], 400, 400, 1, records, "launches", &client_buffers[2])));
    say("assign %s\n", name(rocprofiler_assign_callback_thread(client_buffers[2], worker)));
    say("service %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[0], 21, NULL, 0, client_buffers[0])));
    say("service %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[0], 1, NULL, 0, client_buffers[0])));
    say("service %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[1], 11, NULL, 0, client_buffers[1])));
    say("service %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[1], 10, NULL, 0, client_buffers[1])));
    say("service %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[2], 5, &launch, 1, client_buffers[2])));
    say("service %s\n", name(rocprofiler_configure_callback_tracing_service(client_contexts[3], 10, NULL, 0, code_object, "objects")));

    rocprofiler_context_id_t none = {77};
    rocprofiler_buffer_id_t no_buffer = {77};
    say("again %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[0], 21, NULL, 0, client_buffers[0])));
    say("no context %s\n", name(rocprofiler_configure_buffer_tracing_service(none, 21, NULL, 0, client_buffers[0])));
    say("no buffer %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[3], 21, NULL, 0, no_buffer)));
    say("no kind %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[3], 999, NULL, 0, client_buffers[0])));
    say("no operation %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[3], 22, only, 2, client_buffers[0])));
    say("no library %s\n", name(rocprofiler_configure_buffer_tracing_service(client_contexts[3], 14, NULL, 0, client_buffers[0])));
    say("not built %s\n", name(rocprofiler_iterate_runtime_registration_info(NULL, NULL)));
    say("null %s\n", name(rocprofiler_create_context(NULL)));
    say("null %s\n", name(rocprofiler_create_buffer(client_contexts[0], 4096, 1, 1, NULL, NULL, &no_buffer)));
    say("policy %s\n", name(rocprofiler_create_buffer(client_contexts[0], 4096, 1, 9, records, NULL, &no_buffer)));

    rocprofiler_iterate_buffer_tracing_kinds(count_one, &kinds);
    rocprofiler_iterate_buffer_tracing_kind_operations(1, stop_at_three, &last);
    say("table %s", name(rocprofiler_query_intercept_table_name(2, &text, &time)));
    say(" %s %lu\n", text, time);
    say("kinds=%d last=%d no name=%s\n", kinds, last, name(rocprofiler_query_buffer_tracing_kind_name(999, &text, NULL)));
    say("agents %s\n", name(rocprofiler_query_available_agents(1, agents, AGENT_SIZE, &lock)));
    say("agents %s\n", name(rocprofiler_query_available_agents(1, agents, AGENT_SIZE + 8, &lock)));
    rocprofiler_get_timestamp(&time);
    rocprofiler_get_thread_id(&tid);
    say("time=%d tid=%d words=%d\n", time != 0, tid == (uint64_t)gettid(), rocprofiler_get_status_string(16) != NULL && rocprofiler_get_status_string(1000) == NULL);
    return 0;
}

static void finalize(void *data) { say("finalize data=%s\n", (const char *)data); }

static int tool_attach(client_finalize detach, rocprofiler_context_id_t *contexts, uint64_t count, void *data) {
    rocprofiler_context_id_t late;
    int active = -1, valid = -1;
    say("attach data=%s count=%lu first=%lu detach=%d late=%s\n", (const char *)data, count, contexts[0].handle, detach != NULL,
        name(rocprofiler_create_context(&late)));
    for (uint64_t i = 0; i < count; i++) {
        int status = rocprofiler_start_context(contexts[i]);
        rocprofiler_context_is_active(contexts[i], &active);
        say("start %s active=%d\n", name(status), active);
    }
    rocprofiler_context_id_t none = {77};
    rocprofiler_context_is_valid(none, &valid);
    say("valid=%d %s\n", valid, name(rocprofiler_start_context(none)));
    return client_refuse_attach;
}
static void tool_detach(void *data) {
    int active = 0, sum = 0;
    for (int i = 0; i < 4; i++) { rocprofiler_context_is_active(client_contexts[i], &active); sum += active; }
    say("detach data=%s running=%d\n", (const char *)data, sum);
}
void client_end(void) { end_me(*me); }

rocprofiler_tool_configure_result_t *rocprofiler_configure(uint32_t version, const char *text, uint32_t priority, rocprofiler_client_id_t *id) {
    static rocprofiler_tool_configure_result_t result = {sizeof result, initialize, finalize, "tool"};
    uint32_t major, minor, patch;
    rocprofiler_get_version(&major, &minor, &patch);
    id->name = "client";
    me = id;
    say("configure same=%d text=%s priority=%u handle=%u\n", version == major * 10000 + minor * 100 + patch, text, priority, id->handle);
    return &result;
}
rocprofiler_tool_configure_attach_result_t *rocprofiler_configure_attach(uint32_t version, const char *text, uint32_t priority, rocprofiler_client_id_t *id) {
    static rocprofiler_tool_configure_attach_result_t result = {sizeof result, tool_attach, tool_detach, "attacher"};
    (void)version; (void)text; (void)priority;
    say("configure attach same=%d\n", id == me);
    return &result;
}
