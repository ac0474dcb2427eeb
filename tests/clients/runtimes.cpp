// Which runtimes there are: told when they come, also of those that were there before the attach, by callback and by record.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>
#include <rocprofiler-sdk/cxx/version.hpp>

namespace
{
void came(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_runtime_initialization_data_t*>(record.payload);
    client::expect(data.size == sizeof data && rocprofiler::sdk::version::compute_version_triplet(data.version).major > 0, "a version");
    const auto which = static_cast<rocprofiler_runtime_initialization_operation_t>(record.operation);
    client::add("callback " + std::string(rocprofiler::sdk::get_enum_label(which)));
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_runtime_initialization_record_t*>(payload);
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION && record.size == sizeof record, "a runtime");
        client::add("record " + std::string(rocprofiler::sdk::get_enum_label(record.operation)));
    });
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    CALL(rocprofiler_configure_callback_tracing_service(
        context, ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION, nullptr, 0, came, nullptr));
    CALL(rocprofiler_configure_buffer_tracing_service(
        context, ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION, nullptr, 0, new_buffer(context, records)));
}
