// Every kind that there is, each asked for by itself: what is refused, and what is told in a process with HIP and HSA only.
#include "client.hpp"

namespace
{
std::string buffer_kind(rocprofiler_buffer_tracing_kind_t kind)
{
    const char* name = nullptr;
    CALL(rocprofiler_query_buffer_tracing_kind_name(kind, &name, nullptr));
    return name;
}

std::string callback_kind(rocprofiler_callback_tracing_kind_t kind)
{
    const char* name = nullptr;
    CALL(rocprofiler_query_callback_tracing_kind_name(kind, &name, nullptr));
    return name;
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void*) { client::add("record " + buffer_kind(kind)); });
}

void told(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    client::add("callback " + callback_kind(record.kind));
}

void answered(rocprofiler_status_t status, const std::string& name)
{
    if (status != ROCPROFILER_STATUS_SUCCESS) client::add("refused " + name + ": " + rocprofiler_get_status_name(status));
}
} // namespace

void client::configure()
{
    static const auto context = new_context();
    static const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_iterate_buffer_tracing_kinds(
        [](rocprofiler_buffer_tracing_kind_t kind, void*) {
            answered(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer), "record " + buffer_kind(kind));
            return 0;
        },
        nullptr));
    CALL(rocprofiler_iterate_callback_tracing_kinds(
        [](rocprofiler_callback_tracing_kind_t kind, void*) {
            answered(rocprofiler_configure_callback_tracing_service(context, kind, nullptr, 0, told, nullptr), "callback " + callback_kind(kind));
            return 0;
        },
        nullptr));
}
