// Kernels with their names, as AMD's samples do it: the code object service gives names, which are kept by pointer, and records
// of dispatches name them by id. Agents are found by the id that records have.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/hash.hpp>
#include <rocprofiler-sdk/cxx/operators.hpp>
#include <cstring>
#include <unordered_map>

namespace
{
using symbol_t = rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t;

std::mutex& lock()
{
    static auto* const the = new std::mutex;
    return *the;
}
auto& symbols()
{
    static auto* const the = new std::unordered_map<rocprofiler_kernel_id_t, symbol_t>;
    return *the;
}
auto& agents()
{
    static auto* const the = new std::unordered_map<rocprofiler_agent_id_t, const rocprofiler_agent_v0_t*>;
    return *the;
}

void loaded(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    if (record.operation != ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER || record.phase != ROCPROFILER_CALLBACK_PHASE_LOAD)
        return;
    const auto& symbol = *static_cast<const symbol_t*>(record.payload);
    const std::lock_guard<std::mutex> hold(lock());
    symbols().emplace(symbol.kernel_id, symbol);
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_kernel_dispatch_record_t*>(payload);
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH && record.size == sizeof record, "a dispatch");
        client::expect(record.start_timestamp > 0 && record.start_timestamp < record.end_timestamp, "the times of a dispatch");
        const auto& info = record.dispatch_info;
        const auto agent = agents().find(info.agent_id);
        client::expect(agent != agents().end() && agent->second->type == ROCPROFILER_AGENT_TYPE_GPU, "the agent of a dispatch");
        client::expect(info.workgroup_size > rocprofiler_dim3_t{0, 0, 0}, "the size of a work group");
        const std::lock_guard<std::mutex> hold(lock());
        const auto symbol = symbols().find(info.kernel_id);
        const bool is_known = symbol != symbols().end();
        client::expect(is_known, "a kernel without a name");
        const std::string name = is_known ? symbol->second.kernel_name : "";
        client::add((name.find("vadd") != std::string::npos ? "vadd " : name.find("scale") != std::string::npos ? "scale " : "other ")
                    + std::to_string(info.grid_size.x));
    });
}

rocprofiler_status_t found(rocprofiler_agent_version_t version, const void** list, size_t count, void*)
{
    client::expect(version == ROCPROFILER_AGENT_INFO_VERSION_0, "the version of agents");
    for (size_t n = 0; n < count; ++n) {
        const auto* agent = static_cast<const rocprofiler_agent_v0_t*>(list[n]);
        agents().emplace(agent->id, agent);
    }
    return ROCPROFILER_STATUS_SUCCESS;
}
} // namespace

void client::configure()
{
    CALL(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, found, sizeof(rocprofiler_agent_t), nullptr));
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, nullptr, 0, loaded, nullptr));
    CALL(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, nullptr, 0, buffer));
}
