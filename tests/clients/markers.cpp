// Markers: calls of ROCTx by callback with their messages, whole ranges by callback, and records of both.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>

namespace
{
void around(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    if (record.phase != ROCPROFILER_CALLBACK_PHASE_EXIT) return;
    const auto& data = *static_cast<const rocprofiler_callback_tracing_marker_api_data_t*>(record.payload);
    if (record.kind == ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API) {
        if (record.operation == ROCPROFILER_MARKER_CORE_API_ID_roctxMarkA)
            client::add(std::string("mark: ") + data.args.roctxMarkA.message);
        if (record.operation == ROCPROFILER_MARKER_CORE_API_ID_roctxRangePushA)
            client::add(std::string("push: ") + data.args.roctxRangePushA.message);
    } else {
        client::add("ranges");
    }
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_marker_api_record_t*>(payload);
        client::expect(record.start_timestamp <= record.end_timestamp && record.kind == kind, "a record of a marker");
        client::add(std::string("record of ") + (kind == ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API ? "a call" : "a range"));
    });
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    for (auto kind : {ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API, ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_RANGE_API})
        CALL(rocprofiler_configure_callback_tracing_service(context, kind, nullptr, 0, around, nullptr));
    const auto buffer = new_buffer(context, records);
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API, ROCPROFILER_BUFFER_TRACING_MARKER_CORE_RANGE_API})
        CALL(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer));
}
