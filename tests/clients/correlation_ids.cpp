// Correlation ids, as AMD's own tests look at them: the ids of all calls, told and recorded, are 1
// to N, and the ids of dispatches and copies are among them.
#include "client.hpp"
#include <algorithm>
#include <set>

namespace
{
struct ids_t
{
    std::mutex lock;
    std::set<uint64_t> calls, dispatches, copies;
};
ids_t& ids()
{
    static auto* const the = new ids_t;
    return *the;
}

void told(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    client::expect(record.correlation_id.internal > 0, "a call without an id");
    const std::lock_guard<std::mutex> hold(ids().lock);
    ids().calls.insert(record.correlation_id.internal);
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const std::lock_guard<std::mutex> hold(ids().lock);
        switch (kind) {
        case ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH:
            ids().dispatches.insert(static_cast<const rocprofiler_buffer_tracing_kernel_dispatch_record_t*>(payload)->correlation_id.internal);
            break;
        case ROCPROFILER_BUFFER_TRACING_MEMORY_COPY:
            ids().copies.insert(static_cast<const rocprofiler_buffer_tracing_memory_copy_record_t*>(payload)->correlation_id.internal);
            break;
        case ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION:
            client::expect(static_cast<const rocprofiler_buffer_tracing_runtime_initialization_record_t*>(payload)->correlation_id.internal == 0,
                           "an id of a runtime");
            break;
        default:
            // Records of calls begin alike.
            ids().calls.insert(static_cast<const rocprofiler_buffer_tracing_hsa_api_record_t*>(payload)->correlation_id.internal);
        }
    });
}

void ends()
{
    const std::lock_guard<std::mutex> hold(ids().lock);
    const auto& calls = ids().calls;
    const auto strangers = [&calls](const std::set<uint64_t>& of) {
        return static_cast<uint64_t>(std::count_if(of.begin(), of.end(), [&calls](uint64_t id) { return calls.count(id) == 0; }));
    };
    client::add("calls", calls.size());
    client::add("largest", calls.empty() ? 0 : *calls.rbegin());
    client::add("launching calls", ids().dispatches.size());
    client::add("copying calls", ids().copies.size());
    client::add("of no call", strangers(ids().dispatches) + strangers(ids().copies));
    ids().calls.clear(), ids().dispatches.clear(), ids().copies.clear();
}
} // namespace

void client::configure()
{
    at_the_end = ends;
    const auto callbacks = new_context();
    for (auto kind : {ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API, ROCPROFILER_CALLBACK_TRACING_HSA_AMD_EXT_API,
                      ROCPROFILER_CALLBACK_TRACING_HSA_IMAGE_EXT_API, ROCPROFILER_CALLBACK_TRACING_HSA_FINALIZE_EXT_API,
                      ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, ROCPROFILER_CALLBACK_TRACING_HIP_COMPILER_API,
                      ROCPROFILER_CALLBACK_TRACING_MARKER_CORE_API, ROCPROFILER_CALLBACK_TRACING_MARKER_CONTROL_API,
                      ROCPROFILER_CALLBACK_TRACING_MARKER_NAME_API})
        CALL(rocprofiler_configure_callback_tracing_service(callbacks, kind, nullptr, 0, told, nullptr));
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_HSA_CORE_API, ROCPROFILER_BUFFER_TRACING_HSA_AMD_EXT_API,
                      ROCPROFILER_BUFFER_TRACING_HSA_IMAGE_EXT_API, ROCPROFILER_BUFFER_TRACING_HSA_FINALIZE_EXT_API,
                      ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT, ROCPROFILER_BUFFER_TRACING_HIP_COMPILER_API_EXT,
                      ROCPROFILER_BUFFER_TRACING_MARKER_CORE_API, ROCPROFILER_BUFFER_TRACING_MARKER_CONTROL_API,
                      ROCPROFILER_BUFFER_TRACING_MARKER_NAME_API, ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH,
                      ROCPROFILER_BUFFER_TRACING_MEMORY_COPY, ROCPROFILER_BUFFER_TRACING_RUNTIME_INITIALIZATION})
        CALL(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer));
}
