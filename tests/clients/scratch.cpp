// Scratch memory that queues are given and lose.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>

namespace
{
void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_scratch_memory_record_t*>(payload);
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY && record.size == sizeof record, "a change of scratch");
        client::expect(record.agent_id.handle != 0 && record.queue_id.handle != 0, "whose scratch");
        client::add(std::string(rocprofiler::sdk::get_enum_label(record.operation)));
    });
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    CALL(rocprofiler_configure_buffer_tracing_service(
        context, ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY, nullptr, 0, new_buffer(context, records)));
}
