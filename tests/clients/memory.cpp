// Copies, and allocations and releases of memory, in two contexts.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>

namespace
{
void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        if (kind == ROCPROFILER_BUFFER_TRACING_MEMORY_COPY) {
            const auto& copy = *static_cast<const rocprofiler_buffer_tracing_memory_copy_record_t*>(payload);
            const std::string name(rocprofiler::sdk::get_enum_label(copy.operation));
            client::expect(copy.start_timestamp <= copy.end_timestamp && copy.size == sizeof copy, "a copy");
            client::expect(copy.src_agent_id.handle != copy.dst_agent_id.handle, "from where to where");
            client::add(name);
            client::add("bytes of " + name, copy.bytes);
        } else if (kind == ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION) {
            const auto& memory = *static_cast<const rocprofiler_buffer_tracing_memory_allocation_record_t*>(payload);
            client::expect(memory.size == sizeof memory, "the size of an allocation's record");
            // Nothing may be freed, too: then the address is 0.
            const bool is_new = memory.operation == ROCPROFILER_MEMORY_ALLOCATION_ALLOCATE;
            client::expect(!is_new || memory.address.handle != 0, "the address of an allocation");
            client::add(std::string(rocprofiler::sdk::get_enum_label(memory.operation)));
        } else {
            client::expect(false, "a kind that was not asked for");
        }
    });
}
} // namespace

void client::configure()
{
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, ROCPROFILER_BUFFER_TRACING_MEMORY_ALLOCATION}) {
        const auto context = new_context();
        CALL(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, new_buffer(context, records)));
    }
}
