// Events of OpenMP: callbacks and records of each operation. The two ends of a region have one user data, and one record; other
// events have no phase. They match tests/c/openmp.c.
#include "client.hpp"
#include <atomic>

namespace
{
std::atomic<ompt_get_num_procs_t> processors{nullptr};

std::string name_of(rocprofiler_tracing_operation_t operation)
{
    const char* name = nullptr;
    uint64_t length = 0;
    CALL(rocprofiler_query_callback_tracing_kind_operation_name(ROCPROFILER_CALLBACK_TRACING_OMPT, operation, &name, &length));
    return {name, length};
}

void event(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* user_data, void*)
{
    const auto& data = *static_cast<rocprofiler_callback_tracing_ompt_data_t*>(record.payload);
    client::expect(record.kind == ROCPROFILER_CALLBACK_TRACING_OMPT && data.size == sizeof data, "an event of OpenMP");
    client::expect(record.correlation_id.internal != 0 && record.thread_id != 0, "ids");
    auto name = name_of(record.operation);
    if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        user_data->value = record.correlation_id.internal;
        name += " enter";
    } else if (record.phase == ROCPROFILER_CALLBACK_PHASE_EXIT) {
        client::expect(user_data->value == record.correlation_id.internal, "the user data of a region");
        name += " exit";
    }
    client::add("told " + name);
    switch (record.operation) {
    case ROCPROFILER_OMPT_ID_parallel_begin:
        client::expect(data.args.parallel_begin.requested_parallelism == 4, "four threads");
        client::expect(data.args.parallel_begin.parallel_data != nullptr, "data of a region");
        client::expect(processors != nullptr && processors.load()() > 0, "the runtime's processors");
        data.args.parallel_begin.parallel_data->value = record.correlation_id.internal; // the runtime keeps it for the tool
        break;
    case ROCPROFILER_OMPT_ID_parallel_end: client::expect(data.args.parallel_end.parallel_data->value != 0, "what was kept"); break;
    case ROCPROFILER_OMPT_ID_implicit_task:
        if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
            client::expect(data.args.implicit_task.endpoint == ompt_scope_begin, "a beginning");
            if ((data.args.implicit_task.flags & ompt_task_initial) == 0) client::add("implicit tasks");
        }
        break;
    case ROCPROFILER_OMPT_ID_task_create:
        if ((data.args.task_create.flags & ompt_task_explicit) != 0) client::add("explicit tasks");
        break;
    case ROCPROFILER_OMPT_ID_mutex_acquired:
        if (data.args.mutex_acquired.kind == ompt_mutex_lock) client::add("locks");
        if (data.args.mutex_acquired.kind == ompt_mutex_critical) client::add("criticals");
        break;
    case ROCPROFILER_OMPT_ID_callback_functions:
        processors = data.args.callback_functions.ompt_get_num_procs;
        client::expect(processors != nullptr, "a function of the runtime");
        break;
    default: break;
    }
    int arguments = 0;
    CALL(rocprofiler_iterate_callback_tracing_kind_operation_args(
        record,
        [](rocprofiler_callback_tracing_kind_t, int32_t, uint32_t, const void*, int32_t, const char* type, const char* argument,
            const char* value, int32_t, void* count) {
            client::expect(*type != 0 && *argument != 0 && *value != 0, "an argument");
            ++*static_cast<int*>(count);
            return 0;
        },
        1, &arguments));
    client::expect(arguments > 0, "arguments");
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_ompt_record_t*>(payload);
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_OMPT && record.size == sizeof record, "a record of OpenMP");
        client::expect(record.start_timestamp != 0 && record.start_timestamp <= record.end_timestamp, "times");
        client::expect(record.target.codeptr_ra == nullptr && record.target.task_id == 0, "nothing is offloaded");
        client::add("record " + name_of(record.operation));
    });
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    const auto buffer = new_buffer(context, records, 1 << 20, 1 << 19);
    CALL(rocprofiler_configure_callback_tracing_service(context, ROCPROFILER_CALLBACK_TRACING_OMPT, nullptr, 0, event, nullptr));
    CALL(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_OMPT, nullptr, 0, buffer));
    int status = -1;
    CALL(rocprofiler_ompt_is_initialized(&status));
    expect(status == 0, "no runtime has asked yet");
}
