// Records of HIP calls with their arguments, which are read by type, in words, and through an archive; and external correlation
// ids, which the client gives each call of hipMalloc from its callback.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/serialization.hpp>

namespace
{
constexpr uint64_t OURS = 0x5eed;
rocprofiler_context_id_t calls;

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_hip_api_ext_record_t*>(payload);
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT && record.size == sizeof record, "a call");
        if (record.operation != ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel) return;
        client::add("external id", record.correlation_id.external.value == OURS ? 1 : 0);
        client::add("blocks", record.args.hipModuleLaunchKernel.gridDimX);
        cereal::Node tree;
        cereal::TreeOutputArchive archive(tree);
        save(archive, record);
        for (const auto& argument : tree.at("args").nodes)
            if (argument.second.at("name").text == "gridDimX")
                client::add("blocks in words", std::stoull(argument.second.at("value").text));
    });
}

// Begins before the call that is recorded, so that the record has the id.
void around(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        rocprofiler_user_data_t word = {};
        word.value = OURS;
        CALL(rocprofiler_push_external_correlation_id(calls, record.thread_id, word));
    } else {
        rocprofiler_user_data_t word = {};
        CALL(rocprofiler_pop_external_correlation_id(calls, record.thread_id, &word));
        client::expect(word.value == OURS, "the external id that was pushed");
    }
}
} // namespace

void client::configure()
{
    calls = new_context();
    CALL(rocprofiler_configure_buffer_tracing_service(
        calls, ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT, nullptr, 0, new_buffer(calls, records)));
    const rocprofiler_tracing_operation_t launch[] = {ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel};
    CALL(rocprofiler_configure_callback_tracing_service(
        new_context(), ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, launch, 1, around, nullptr));
}
