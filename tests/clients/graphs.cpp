// Records of launches of HIP's graphs: whose they are, which graph, and how many kernels each launched.
#include "client.hpp"
#include <set>

namespace
{
struct seen_t
{
    std::set<uint64_t> graphs, threads, calls;
};
seen_t& seen()
{
    static auto* const the = new seen_t;
    return *the;
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::each(headers, count, dropped, [](rocprofiler_buffer_tracing_kind_t kind, const void* payload) {
        client::expect(kind == ROCPROFILER_BUFFER_TRACING_HIP_GRAPH, "the kind of a launch");
        const auto& record = *static_cast<const rocprofiler_buffer_tracing_hip_graph_record_t*>(payload);
        client::expect(record.size == sizeof record && record.kind == kind, "size and kind of a launch");
        client::expect(record.operation == ROCPROFILER_HIP_GRAPH_OPERATION_EXEC_LAUNCH, "the operation of a launch");
        client::expect(record.start_timestamp > 0 && record.start_timestamp <= record.end_timestamp, "the times of a launch");
        client::expect(seen().calls.insert(record.correlation_id.internal).second, "a call with two launches");
        client::expect(record.graph_exec_id.handle > 0, "a graph without a number");
        seen().graphs.insert(record.graph_exec_id.handle);
        seen().threads.insert(record.thread_id);
        client::add("launches");
        client::add("kernels", record.kernel_dispatch_count);
    });
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_configure_buffer_tracing_service(context, ROCPROFILER_BUFFER_TRACING_HIP_GRAPH, nullptr, 0, buffer));
    client::at_the_end = [] {
        add("graphs", seen().graphs.size());
        add("threads", seen().threads.size());
        seen() = {};
    };
}
