// Scratch memory that queues are given and lose: by record, and told at the begin and the end of each change.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>
#include <unistd.h>

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

void change(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* word, void* context)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_scratch_memory_data_t*>(record.payload);
    const auto operation = static_cast<rocprofiler_scratch_memory_operation_t>(record.operation);
    client::expect(record.kind == ROCPROFILER_CALLBACK_TRACING_SCRATCH_MEMORY && context == nullptr, "what was asked for");
    client::expect(data.size == sizeof data && data.agent_id.handle != 0 && data.queue_id.handle != 0, "whose scratch is told");
    client::expect(record.thread_id == static_cast<uint64_t>(gettid()), "the thread of a change");
    const bool begins = record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER;
    if (begins) {
        client::expect(word->value == 0, "a word that is not empty");
        word->value = data.queue_id.handle + 1;
    }
    else {
        client::expect(record.phase == ROCPROFILER_CALLBACK_PHASE_EXIT, "the phase");
        client::expect(word->value == data.queue_id.handle + 1, "an end without its begin");
    }
    // The runtime's own event: the begin and the end of an operation have numbers of their own.
    const int kind = operation == ROCPROFILER_SCRATCH_MEMORY_ALLOC ? HSA_AMD_TOOL_EVENT_SCRATCH_ALLOC_START
                     : operation == ROCPROFILER_SCRATCH_MEMORY_FREE ? HSA_AMD_TOOL_EVENT_SCRATCH_FREE_START
                                                                    : HSA_AMD_TOOL_EVENT_SCRATCH_ASYNC_RECLAIM_START;
    client::expect(data.args_kind == kind + (begins ? 0 : 1), "the runtime's event");
    if (operation == ROCPROFILER_SCRATCH_MEMORY_ALLOC && !begins)
        client::expect(data.args.alloc_end.size > 0 && data.args.alloc_end.num_slots > 0, "how much");
    client::add((begins ? "begin " : "end ") + std::string(rocprofiler::sdk::get_enum_label(operation)));
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    CALL(rocprofiler_configure_callback_tracing_service(
        context, ROCPROFILER_CALLBACK_TRACING_SCRATCH_MEMORY, nullptr, 0, change, nullptr));
    CALL(rocprofiler_configure_buffer_tracing_service(
        context, ROCPROFILER_BUFFER_TRACING_SCRATCH_MEMORY, nullptr, 0, new_buffer(context, records)));
}
