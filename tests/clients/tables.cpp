// Runtimes' tables as they are registered, the library's own threads as they are made, kinds of libraries that are not there,
// and services that need hardware which this machine lacks.
#include "client.hpp"

namespace
{
// A member of an old table must not be changed by a new runtime: all that is looked at is that there is one.
void table(rocprofiler_intercept_table_t type, uint64_t version, uint64_t, void** tables, uint64_t count, void*)
{
    client::expect(version > 0 && count == 1 && tables != nullptr && tables[0] != nullptr, "a table");
    client::add(type == ROCPROFILER_HSA_TABLE            ? "HSA's table"
                : type == ROCPROFILER_HIP_RUNTIME_TABLE  ? "HIP's table"
                : type == ROCPROFILER_HIP_COMPILER_TABLE ? "HIP's table for compilers"
                                                         : "another table");
}

void before(rocprofiler_runtime_library_t library, void*)
{
    client::expect(library == ROCPROFILER_LIBRARY, "a thread of this library");
    client::add("threads begun");
}

void after(rocprofiler_runtime_library_t, void*)
{
    client::add("threads made");
}

void never(rocprofiler_callback_tracing_record_t, rocprofiler_user_data_t*, void*)
{
    client::expect(false, "something of a library that is not there");
}
void no_records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t**, size_t count, void*, uint64_t)
{
    client::expect(count == 0, "a record of a library that is not there");
}
} // namespace

void client::configure()
{
    CALL(rocprofiler_at_internal_thread_create(before, after, ROCPROFILER_LIBRARY | ROCPROFILER_HIP_LIBRARY, nullptr));
    CALL(rocprofiler_at_intercept_table_registration(
        table, ROCPROFILER_HSA_TABLE | ROCPROFILER_HIP_RUNTIME_TABLE | ROCPROFILER_HIP_COMPILER_TABLE, nullptr));
    const auto context = new_context();
    const auto buffer = new_buffer(context, no_records);
    for (auto kind : {ROCPROFILER_CALLBACK_TRACING_RCCL_API, ROCPROFILER_CALLBACK_TRACING_OMPT, ROCPROFILER_CALLBACK_TRACING_ROCDECODE_API,
                      ROCPROFILER_CALLBACK_TRACING_ROCJPEG_API})
        CALL(rocprofiler_configure_callback_tracing_service(context, kind, nullptr, 0, never, nullptr));
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_RCCL_API, ROCPROFILER_BUFFER_TRACING_OMPT, ROCPROFILER_BUFFER_TRACING_ROCDECODE_API,
                      ROCPROFILER_BUFFER_TRACING_ROCJPEG_API, ROCPROFILER_BUFFER_TRACING_KFD_PAGE_MIGRATE,
                      ROCPROFILER_BUFFER_TRACING_KFD_PAGE_FAULT, ROCPROFILER_BUFFER_TRACING_KFD_QUEUE})
        CALL(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer));
    // As AMD's: there are no such records.
    expect(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HIP_STREAM, nullptr, 0, buffer)
               == ROCPROFILER_STATUS_ERROR_NOT_IMPLEMENTED,
           "records of streams");
}
