// Events of the kernel driver, by record: each by itself, and of a begin and its end one for both. They match
// tests/c/driver_events.c.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>
#include <unistd.h>

namespace
{
template <typename Record> const Record& as(const void* payload, rocprofiler_buffer_tracing_kind_t kind)
{
    const auto& record = *static_cast<const Record*>(payload);
    client::expect(record.size == sizeof record && record.kind == kind && record.pid == static_cast<uint32_t>(getpid()), "an event");
    client::add(std::string(rocprofiler::sdk::get_enum_label(record.operation)));
    return record;
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        switch (kind) {
        case ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE: {
            const auto& record = as<rocprofiler_buffer_tracing_kfd_event_page_migrate_record_t>(payload, kind);
            client::expect(record.end_address.value - record.start_address.value == 4 * 4096, "pages");
            break;
        }
        case ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE: {
            const auto& record = as<rocprofiler_buffer_tracing_kfd_page_migrate_record_t>(payload, kind);
            client::expect(record.start_timestamp < record.end_timestamp && record.error_code == -12, "a migration");
            client::expect(record.src_agent.handle != 0 && record.dst_agent.handle != 0, "agents");
            client::expect(record.src_agent.handle != record.dst_agent.handle, "two agents");
            client::expect(record.prefetch_agent.handle == record.dst_agent.handle, "where to");
            client::expect(record.preferred_agent.handle == record.src_agent.handle, "where best");
            break;
        }
        case ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_FAULT: {
            const auto& record = as<rocprofiler_buffer_tracing_kfd_event_page_fault_record_t>(payload, kind);
            client::expect(record.agent_id.handle != 0 && record.address.value >> 12 >= 0x2000, "a page");
            break;
        }
        case ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT: {
            const auto& record = as<rocprofiler_buffer_tracing_kfd_page_fault_record_t>(payload, kind);
            client::expect(record.start_timestamp < record.end_timestamp && record.address.value >> 12 >= 0x2000, "a fault");
            break;
        }
        case ROCPROFILER_BUFFER_TRACING_KFD_EVENT_QUEUE:
            as<rocprofiler_buffer_tracing_kfd_event_queue_record_t>(payload, kind);
            break;
        case ROCPROFILER_BUFFER_TRACING_KFD_QUEUE: {
            const auto& record = as<rocprofiler_buffer_tracing_kfd_queue_record_t>(payload, kind);
            client::expect(record.start_timestamp < record.end_timestamp && record.agent_id.handle != 0, "an eviction");
            break;
        }
        case ROCPROFILER_BUFFER_TRACING_KFD_EVENT_UNMAP_FROM_GPU: {
            const auto& record = as<rocprofiler_buffer_tracing_kfd_event_unmap_from_gpu_record_t>(payload, kind);
            client::expect(record.end_address.value - record.start_address.value == 8 * 4096, "pages that go");
            break;
        }
        case ROCPROFILER_BUFFER_TRACING_KFD_EVENT_DROPPED_EVENTS:
            client::add("dropped", as<rocprofiler_buffer_tracing_kfd_event_dropped_events_record_t>(payload, kind).count);
            break;
        default: client::expect(false, "the kind of an event");
        }
    });
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    for (int kind = ROCPROFILER_BUFFER_TRACING_KFD_EVENT_PAGE_MIGRATE; kind <= ROCPROFILER_BUFFER_TRACING_KFD_QUEUE; ++kind)
        CALL(rocprofiler_configure_buffer_tracing_service(
            context, static_cast<rocprofiler_buffer_tracing_kind_t>(kind), nullptr, 0, buffer));
}
