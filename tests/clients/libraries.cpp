// Calls of the libraries above HIP: RCCL, rocDecode, rocJPEG. Told around each call with its arguments and its result, and by
// record; rocDecode's records have arguments, too. The arguments match tests/c/libraries.c.
#include "client.hpp"
#include <rocprofiler-sdk/cxx/enum_string.hpp>
#include <unistd.h>

namespace
{
uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// The name of a function, without what is before it.
template <typename Id> std::string name(int32_t operation)
{
    const std::string label(rocprofiler::sdk::get_enum_label(static_cast<Id>(operation)));
    const auto at = label.find("_API_ID_");
    client::expect(at != std::string::npos, "a name");
    return label.substr(at + 8);
}

std::string words(rocprofiler_callback_tracing_record_t record)
{
    std::string all;
    CALL(rocprofiler_iterate_callback_tracing_kind_operation_args(
        record,
        [](rocprofiler_callback_tracing_kind_t,
           rocprofiler_tracing_operation_t,
           uint32_t number,
           const void* const,
           int32_t,
           const char*,
           const char* argument,
           const char* value,
           int32_t,
           void* into) {
            static_cast<std::string*>(into)->append((number ? " " : "") + std::string(argument) + '=' + value);
            return 0;
        },
        0,
        &all));
    return all;
}

void of_rccl(rocprofiler_callback_tracing_record_t record)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_rccl_api_data_t*>(record.payload);
    client::expect(data.size == sizeof data, "the size of RCCL's");
    client::add("callback " + name<rocprofiler_rccl_api_id_t>(record.operation));
    switch (record.operation) {
    case ROCPROFILER_RCCL_API_ID_ncclAllReduce: {
        const auto& all = data.args.ncclAllReduce;
        client::expect(address(all.sendbuff) == 32 && address(all.recvbuff) == 48 && all.count == 1024, "buffers");
        client::expect(all.datatype == 7 && all.op == 0 && address(all.comm) == 64 && address(all.stream) == 80, "how");
        client::expect(words(record) == "sendbuff=0x20 recvbuff=0x30 count=1024 datatype=7 op=0 comm=0x40 stream=0x50", "words");
        client::expect(data.retval.ncclResult_t_retval == 0, "a result");
        break;
    }
    case ROCPROFILER_RCCL_API_ID_ncclAllToAllv:
        client::expect(data.args.ncclAllToAllv.datatype == 7 && address(data.args.ncclAllToAllv.stream) == 9, "the last");
        break;
    case ROCPROFILER_RCCL_API_ID_ncclCommInitRank: {
        const auto& init = data.args.ncclCommInitRank;
        const auto* const id = reinterpret_cast<const char*>(&init.commId);
        client::expect(init.nranks == 8 && init.myrank == 3 && id[0] == 1 && id[127] == 2, "a struct by value");
        break;
    }
    case ROCPROFILER_RCCL_API_ID_ncclGetErrorString:
        client::expect(std::string(data.retval.const_charp_retval) == "a text", "a text");
        break;
    default: break;
    }
}

void of_rocdecode(rocprofiler_callback_tracing_record_t record)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_rocdecode_api_data_t*>(record.payload);
    client::expect(data.size == sizeof data, "the size of rocDecode's");
    client::add("callback " + name<rocprofiler_rocdecode_api_id_t>(record.operation));
    if (record.operation == ROCPROFILER_ROCDECODE_API_ID_rocDecGetVideoFrame)
        client::expect(data.args.rocDecGetVideoFrame.pic_idx == 5 && address(data.args.rocDecGetVideoFrame.vid_postproc_params) == 64,
                       "a frame");
}

void of_rocjpeg(rocprofiler_callback_tracing_record_t record)
{
    const auto& data = *static_cast<const rocprofiler_callback_tracing_rocjpeg_api_data_t*>(record.payload);
    client::expect(data.size == sizeof data, "the size of rocJPEG's");
    client::add("callback " + name<rocprofiler_rocjpeg_api_id_t>(record.operation));
    if (record.operation == ROCPROFILER_ROCJPEG_API_ID_rocJpegStreamParse)
        client::expect(data.args.rocJpegStreamParse.length == 4096, "a length");
    if (record.operation == ROCPROFILER_ROCJPEG_API_ID_rocJpegCreate)
        client::expect(data.args.rocJpegCreate.backend == 1 && data.args.rocJpegCreate.device_id == 2, "a backend");
}

void around(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t* word, void*)
{
    client::expect(record.thread_id == static_cast<uint64_t>(gettid()) && record.correlation_id.internal > 0, "whose call");
    if (record.phase == ROCPROFILER_CALLBACK_PHASE_ENTER) {
        client::expect(word->value == 0, "a word that is not empty");
        word->value = record.correlation_id.internal;
        return;
    }
    client::expect(word->value == record.correlation_id.internal, "an end without its begin");
    if (record.kind == ROCPROFILER_CALLBACK_TRACING_RCCL_API) of_rccl(record);
    if (record.kind == ROCPROFILER_CALLBACK_TRACING_ROCDECODE_API) of_rocdecode(record);
    if (record.kind == ROCPROFILER_CALLBACK_TRACING_ROCJPEG_API) of_rocjpeg(record);
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        if (kind == ROCPROFILER_BUFFER_TRACING_RCCL_API) {
            const auto& record = *static_cast<const rocprofiler_buffer_tracing_rccl_api_record_t*>(payload);
            client::expect(record.size == sizeof record && record.kind == kind && record.start_timestamp <= record.end_timestamp, "RCCL");
            client::add("record " + name<rocprofiler_rccl_api_id_t>(record.operation));
        }
        else if (kind == ROCPROFILER_BUFFER_TRACING_ROCJPEG_API) {
            const auto& record = *static_cast<const rocprofiler_buffer_tracing_rocjpeg_api_record_t*>(payload);
            client::expect(record.size == sizeof record && record.kind == kind, "rocJPEG");
            client::add("record " + name<rocprofiler_rocjpeg_api_id_t>(record.operation));
        }
        else {
            const auto& record = *static_cast<const rocprofiler_buffer_tracing_rocdecode_api_ext_record_t*>(payload);
            client::expect(kind == ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT && record.size == sizeof record, "rocDecode");
            client::add("record " + name<rocprofiler_rocdecode_api_id_t>(record.operation));
            if (record.operation == ROCPROFILER_ROCDECODE_API_ID_rocDecGetDecodeStatus)
                client::expect(record.args.rocDecGetDecodeStatus.pic_idx == -1 && record.retval.rocDecStatus_retval == 0, "arguments");
        }
    });
}

void came(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    const auto which = static_cast<rocprofiler_runtime_initialization_operation_t>(record.operation);
    if (which >= ROCPROFILER_RUNTIME_INITIALIZATION_RCCL) client::add(std::string(rocprofiler::sdk::get_enum_label(which)));
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    for (auto kind : {ROCPROFILER_CALLBACK_TRACING_RCCL_API, ROCPROFILER_CALLBACK_TRACING_ROCDECODE_API, ROCPROFILER_CALLBACK_TRACING_ROCJPEG_API})
        CALL(rocprofiler_configure_callback_tracing_service(context, kind, nullptr, 0, around, nullptr));
    CALL(rocprofiler_configure_callback_tracing_service(
        context, ROCPROFILER_CALLBACK_TRACING_RUNTIME_INITIALIZATION, nullptr, 0, came, nullptr));
    const auto buffer = new_buffer(context, records);
    for (auto kind : {ROCPROFILER_BUFFER_TRACING_RCCL_API, ROCPROFILER_BUFFER_TRACING_ROCDECODE_API_EXT, ROCPROFILER_BUFFER_TRACING_ROCJPEG_API})
        CALL(rocprofiler_configure_buffer_tracing_service(context, kind, nullptr, 0, buffer));
}
