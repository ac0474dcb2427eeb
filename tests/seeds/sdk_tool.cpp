// A tool in C++ against the installed headers: counts the HIP calls of each session by the
// arguments and results that records have, and writes a line at each detach to the file that
// TOOL_LOG names.
#include <rocprofiler-sdk/registration.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace
{
rocprofiler_context_id_t context = {};
rocprofiler_buffer_id_t buffer = {};
std::atomic<unsigned long> calls{0}, launches{0}, mallocs{0}, wrong{0};

// The arguments in words have the names of the members.
int on_argument(rocprofiler_buffer_tracing_kind_t,
                rocprofiler_tracing_operation_t,
                uint32_t number,
                const void* const address,
                int32_t,
                const char*,
                const char* name,
                const char* value,
                void* data)
{
    auto* named = static_cast<unsigned*>(data);
    const auto is = [name](const char* wanted) { return std::strcmp(name, wanted) == 0; };
    if(number == 0 && is("func") && address) ++*named;
    if(number == 4 && is("blockDimX") && (std::atoi(value) == 64 || std::atoi(value) == 32)) ++*named;
    if(number == 10 && is("extra")) ++*named;
    return 0;
}

void on_records(rocprofiler_context_id_t,
                rocprofiler_buffer_id_t,
                rocprofiler_record_header_t** headers,
                size_t count,
                void*,
                uint64_t)
{
    for(size_t i = 0; i < count; ++i)
    {
        const auto* header = headers[i];
        if(header->category != ROCPROFILER_BUFFER_CATEGORY_TRACING || header->kind != ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT ||
           header->hash != rocprofiler_record_header_compute_hash(header->category, header->kind))
        {
            ++wrong;
            continue;
        }
        const auto* record = static_cast<rocprofiler_buffer_tracing_hip_api_ext_record_t*>(header->payload);
        if(record->size != sizeof(*record) || record->end_timestamp < record->start_timestamp) ++wrong;
        ++calls;
        if(record->operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipMalloc)
        {
            if(record->args.hipMalloc.size != 4096 || !record->args.hipMalloc.ptr || record->retval.int_retval != 0) ++wrong;
            ++mallocs;
        }
        if(record->operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel)
        {
            const auto& launch = record->args.hipModuleLaunchKernel;
            if(launch.gridDimX * launch.blockDimX != 320 && launch.gridDimX * launch.blockDimX != 192) ++wrong;
            unsigned named = 0;
            if(rocprofiler_iterate_buffer_tracing_record_args(*header, on_argument, &named) != ROCPROFILER_STATUS_SUCCESS || named != 3)
                ++wrong;
            ++launches;
        }
    }
}

int initialize(rocprofiler_client_finalize_t, void*)
{
    if(rocprofiler_create_context(&context) != ROCPROFILER_STATUS_SUCCESS) return -1;
    if(rocprofiler_create_buffer(context, 1 << 16, 1 << 15, ROCPROFILER_BUFFER_POLICY_LOSSLESS, on_records, nullptr, &buffer) !=
       ROCPROFILER_STATUS_SUCCESS)
        return -1;
    return rocprofiler_configure_buffer_tracing_service(
               context, ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API_EXT, nullptr, 0, buffer) == ROCPROFILER_STATUS_SUCCESS
               ? 0
               : -1;
}

int on_attach(rocprofiler_client_finalize_t, rocprofiler_context_id_t* contexts, uint64_t count, void*)
{
    if(count != 1 || contexts[0].handle != context.handle) return -1;
    return rocprofiler_start_context(context) == ROCPROFILER_STATUS_SUCCESS ? 0 : -1;
}

void on_detach(void*)
{
    if(rocprofiler_flush_buffer(buffer) != ROCPROFILER_STATUS_SUCCESS) ++wrong;
    if(FILE* log = std::fopen(TOOL_LOG, "a"))
    {
        std::fprintf(log, "calls=%lu launches=%lu mallocs=%lu wrong=%lu\n", calls.load(), launches.load(), mallocs.load(), wrong.load());
        std::fclose(log);
    }
}
}  // namespace

extern "C" rocprofiler_tool_configure_result_t*
rocprofiler_configure(uint32_t version, const char*, uint32_t, rocprofiler_client_id_t* id)
{
    if(version / 10000 != ROCPROFILER_VERSION_MAJOR) return nullptr;
    id->name = "sdk_tool";
    static rocprofiler_tool_configure_result_t result = {sizeof(result), initialize, nullptr, nullptr};
    return &result;
}

extern "C" rocprofiler_tool_configure_attach_result_t*
rocprofiler_configure_attach(uint32_t, const char*, uint32_t, rocprofiler_client_id_t*)
{
    static rocprofiler_tool_configure_attach_result_t result = {sizeof(result), on_attach, on_detach, nullptr};
    return &result;
}
