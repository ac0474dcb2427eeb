// Being called around calls of HIP: each begin has its end on the same thread, arguments can be read by type and in words.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>
#include <unistd.h>
#include <cstring>

namespace
{
constexpr char label[] = "ROCPROFILER_HIP_RUNTIME_API_ID_";

void around(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* word, void* context)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_hip_api_data_t*>(record.payload);
    client::expect(record.kind == ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API && context == nullptr, "what was asked for");
    client::expect(data.size == sizeof data && record.thread_id == static_cast<uint64_t>(gettid()), "the thread of a call");
    if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        client::expect(word->value == 0, "a word that is not empty");
        word->value = record.correlation_id.internal;
        return;
    }
    client::expect(record.phase == ROCPROFILER_CALLBACK_PHASE_EXIT, "the phase");
    client::expect(word->value == record.correlation_id.internal && word->value > 0, "an end without its begin");
    const auto name = rocprofiler::sdk::get_enum_label(static_cast<rocprofiler_hip_runtime_api_id_t>(record.operation));
    client::add(std::string(name.substr(sizeof label - 1)));
    if (record.operation != ROCPROFILER_HIP_RUNTIME_API_ID_hipMalloc) return;
    client::expect(data.retval.hipError_t_retval == 0, "the result of hipMalloc");
    client::add("bytes of hipMalloc", data.args.hipMalloc.size);
    std::string words;
    CALL(rocprofiler_iterate_callback_tracing_kind_operation_args(
        record,
        [](rocprofiler_callback_tracing_kind_t,
           rocprofiler_tracing_operation_t,
           uint32_t number,
           const void* const address,
           int32_t,
           const char* type,
           const char* argument,
           const char* value,
           int32_t,
           void* into) {
            client::expect(address != nullptr && *type != 0, "an argument");
            if (number == 1) *static_cast<std::string*>(into) = std::string(argument) + '=' + value;
            return 0;
        },
        1,
        &words));
    client::expect(words == "size=" + std::to_string(data.args.hipMalloc.size), "an argument in words");
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    CALL(rocprofiler_configure_callback_tracing_service(
        context, ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, nullptr, 0, around, nullptr));
}
