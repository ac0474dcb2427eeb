// External correlation ids that the client is asked for, and the retirement of correlation ids: after all that has the id.
#include "client.hpp"
#include <set>

namespace
{
constexpr uint64_t OURS = 1000000;

struct ids_t
{
    std::mutex lock;
    std::set<uint64_t> used, retired;
};
ids_t& ids()
{
    static auto* const the = new ids_t;
    return *the;
}

int ask(rocprofiler_thread_id_t thread, rocprofiler_context_id_t, rocprofiler_external_correlation_id_request_kind_t kind,
        rocprofiler_tracing_operation_t, uint64_t internal, rocprofiler_user_data_t* external, void*)
{
    client::expect(thread > 0 && internal > 0, "whose id is asked for");
    client::add(kind == ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH ? "asked for a dispatch"
                : kind == ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY   ? "asked for a copy"
                                                                                 : "asked for something else");
    external->value = internal + OURS;
    return 0;
}

void use(const rocprofiler_async_correlation_id_t& id, const char* what)
{
    client::expect(id.internal > 0 && id.external.value == id.internal + OURS, "the external id of a record");
    client::expect(ids().retired.count(id.internal) == 0, "a record of an id that was retired");
    ids().used.insert(id.internal);
    client::add(what);
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const std::lock_guard<std::mutex> hold(ids().lock);
        if (kind == ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH)
            use(static_cast<const rocprofiler_buffer_tracing_kernel_dispatch_record_t*>(payload)->correlation_id, "dispatches");
        else if (kind == ROCPROFILER_BUFFER_TRACING_MEMORY_COPY)
            use(static_cast<const rocprofiler_buffer_tracing_memory_copy_record_t*>(payload)->correlation_id, "copies");
        else {
            const auto& record = *static_cast<const rocprofiler_buffer_tracing_correlation_id_retirement_record_t*>(payload);
            client::expect(record.size == sizeof record && record.timestamp > 0, "a retirement");
            client::expect(ids().retired.insert(record.internal_correlation_id).second, "an id that is retired twice");
        }
    });
}

void ends()
{
    const std::lock_guard<std::mutex> hold(ids().lock);
    uint64_t left = 0;
    for (uint64_t id : ids().used)
        left += ids().retired.count(id) == 0;
    client::add("never retired", left);
    ids().used.clear(), ids().retired.clear();
}
} // namespace

void client::configure()
{
    at_the_end = ends;
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, ROCPROFILER_BUFFER_TRACING_MEMORY_COPY,
                      ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT})
        CALL(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer));
    const rocprofiler_external_correlation_id_request_kind_t kinds[] = {ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH,
                                                                         ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY};
    CALL(rocprofiler_configure_external_correlation_id_request_service(context, kinds, 2, ask, nullptr));
}
