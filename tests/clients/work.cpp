// Work from its beginning to its end, by callback: dispatches as they are enqueued and as they complete, copies, allocations,
// and the streams that calls name. A word that is left at the beginning is there at the end.
#include "client.hpp"

namespace
{
rocprofiler_context_id_t context;

template <typename Data>
const Data& payload(const rocprofiler_callback_tracing_record_t& record)
{
    const auto& data = *static_cast<const Data*>(record.payload);
    client::expect(data.size == sizeof data && record.context_id.handle == context.handle, "a payload");
    return data;
}

void dispatch(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* word, void*)
{
    const auto& data = payload<rocprofiler_callback_tracing_kernel_dispatch_data_t>(record);
    const auto& info = data.dispatch_info;
    client::expect(info.kernel_id > 0 && info.agent_id.handle != 0 && record.correlation_id.internal > 0, "what is dispatched");
    if (record.operation == ROCPROFILER_KERNEL_DISPATCH_COMPLETE) {
        client::expect(record.phase == ROCPROFILER_CALLBACK_PHASE_NONE && data.start_timestamp > 0 && data.start_timestamp < data.end_timestamp,
                       "the times of a dispatch");
        client::expect(word->value == info.dispatch_id, "the word of a dispatch");
        client::add("completed");
    } else if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        word->value = info.dispatch_id;
        client::add("enqueued");
        client::add("work items", uint64_t{info.grid_size.x} * info.grid_size.y * info.grid_size.z);
    }
}

void copy(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* word, void*)
{
    const auto& data = payload<rocprofiler_callback_tracing_memory_copy_data_t>(record);
    if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        word->value = data.bytes;
        client::expect(data.start_timestamp == 0 && data.end_timestamp == 0, "a copy that has times at its beginning");
    } else {
        client::expect(word->value == data.bytes && data.start_timestamp > 0 && data.start_timestamp <= data.end_timestamp, "a copy's end");
        client::add("copies");
        client::add("bytes copied", data.bytes);
    }
}

void allocation(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* word, void*)
{
    const auto& data = payload<rocprofiler_callback_tracing_memory_allocation_data_t>(record);
    if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        word->value = 7;
        return;
    }
    client::expect(word->value == 7, "the word of an allocation");
    if (record.operation == ROCPROFILER_MEMORY_ALLOCATION_ALLOCATE)
        client::add("allocated"), client::expect(data.address.value != 0, "an allocation's address");
    if (record.operation == ROCPROFILER_MEMORY_ALLOCATION_FREE && data.address.value != 0) client::add("freed");
}

void stream(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    const auto& data = payload<rocprofiler_callback_tracing_hip_stream_data_t>(record);
    if (record.operation == ROCPROFILER_HIP_STREAM_SET && record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER)
        client::add("calls that name a stream"), client::expect((data.stream_id.handle != 0) == (data.stream_value.value != 0), "a stream");
}
} // namespace

void client::configure()
{
    context = new_context();
    const struct
    {
        rocprofiler_callback_tracing_kind_t kind;
        rocprofiler_callback_tracing_cb_t told;
    } services[] = {{ROCPROFILER_CALLBACK_TRACING_KERNEL_DISPATCH, dispatch},
                    {ROCPROFILER_CALLBACK_TRACING_MEMORY_COPY, copy},
                    {ROCPROFILER_CALLBACK_TRACING_MEMORY_ALLOCATION, allocation},
                    {ROCPROFILER_CALLBACK_TRACING_HIP_STREAM, stream}};
    for (const auto& service : services)
        CALL(rocprofiler_configure_callback_tracing_service(context, service.kind, nullptr, 0, service.told, nullptr));
}
