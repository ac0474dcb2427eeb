// Records of calls of HIP and HSA, by the names that the library gives them.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/name_info.hpp>

namespace
{
auto& names()
{
    static auto* const the = new rocprofiler::sdk::buffer_name_info(rocprofiler::sdk::get_buffer_tracing_names());
    return *the;
}

// HIP's and HSA's records of calls are laid out alike.
void call(rocprofiler_buffer_tracing_kind_t kind, const void* payload)
{
    const auto& record = *static_cast<const rocprofiler_buffer_tracing_hip_api_record_t*>(payload);
    client::expect(record.size == sizeof record && record.kind == kind, "size and kind of a call");
    client::expect(record.start_timestamp > 0 && record.start_timestamp <= record.end_timestamp, "the times of a call");
    client::expect(record.correlation_id.internal > 0 && record.thread_id > 0, "who made a call");
    client::add(std::string(names().at(record.kind, record.operation)));
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, call);
}
} // namespace

void client::configure()
{
    names();
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, nullptr, 0, buffer));
    // Of HSA only some: HIP itself calls it.
    const rocprofiler_tracing_operation_t some[] = {ROCPROFILER_HSA_CORE_API_ID_hsa_signal_load_relaxed};
    CALL(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HSA_CORE_API, some, 1, buffer));
}
