// Records of HIP's events: each is a line of its own, with all that the record has. None comes after its correlation id was retired.
#include "client.hpp"
#include <set>

namespace
{
struct seen_t
{
    std::set<uint64_t> calls, told, retired;
};
seen_t& seen()
{
    static auto* const the = new seen_t;
    return *the;
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    if (dropped > 0) client::add("dropped", dropped);
    client::each(headers, count, 0, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        if (kind == ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT) {
            const auto& retirement = *static_cast<const rocprofiler_buffer_tracing_correlation_id_retirement_record_t*>(payload);
            seen().retired.insert(retirement.internal_correlation_id);
            return;
        }
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_HIP_EVENT, "the kind of an event");
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_hip_event_record_t*>(payload);
        client::expect(record.size == sizeof record && record.kind == kind, "size and kind of an event");
        client::expect(record.start_timestamp > 0 && record.start_timestamp <= record.end_timestamp, "the times of an event");
        const uint64_t id = record.correlation_id.internal;
        client::expect(seen().calls.insert(id).second, "a call with two records");
        client::expect(seen().retired.count(id) == 0, "a record of an id that was retired");
        std::string line = "event";
        for (const uint64_t number : {static_cast<uint64_t>(record.operation), record.start_timestamp, record.end_timestamp, record.hip_event_handle,
                 record.queue_id.handle, record.source_queue_id.handle, id, record.thread_id, record.agent_id.handle})
            line += ' ' + std::to_string(number);
        client::add(line);
    });
}

// A callback for the same barrier, when it has ended.
void told(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void* context)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_hip_event_data_t*>(record.payload);
    client::expect(record.kind == ROCPROFILER_CALLBACK_TRACING_HIP_EVENT && record.phase == ROCPROFILER_CALLBACK_PHASE_NONE && context == nullptr,
        "what was asked for");
    client::expect(data.size == sizeof data && data.start_timestamp > 0 && data.start_timestamp <= data.end_timestamp, "the times of a callback");
    client::expect(seen().told.insert(record.correlation_id.internal).second, "a call with two callbacks");
    std::string line = "told";
    for (const uint64_t number : {static_cast<uint64_t>(record.operation), data.start_timestamp, data.end_timestamp, data.hip_event_handle,
             data.queue_id.handle, data.source_queue_id.handle, record.correlation_id.internal, record.thread_id, data.agent_id.handle})
        line += ' ' + std::to_string(number);
    client::add(line);
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    CALL(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_HIP_EVENT, nullptr, 0, told, nullptr));
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HIP_EVENT, nullptr, 0, buffer));
    const auto retirement = ROCPROFILER_BUFFER_TRACING_CORRELATION_ID_RETIREMENT;
    CALL(rocprofiler_configure_buffer_tracing_service(context, retirement, nullptr, 0, buffer));
    client::at_the_end = [] {
        for (const uint64_t id : seen().calls)
            client::add("retired", seen().retired.count(id));
        seen() = {};
    };
}
