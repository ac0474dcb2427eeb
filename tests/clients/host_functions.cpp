// The functions by which a program launches its kernels: two contexts are told the same of each, after the kernel itself.
#include "client.hpp"
#include <map>
#include <set>

namespace
{
using host_t = rocprofiler_callback_tracing_code_object_host_kernel_symbol_register_data_t;

struct seen_t
{
    std::mutex lock;
    std::map<uint64_t, std::set<uint64_t>> kernels;                  // by context
    std::map<uint64_t, std::map<uint64_t, uint64_t>> hosts;          // by context: kernel, host function
};
seen_t& seen()
{
    static auto* const the = new seen_t;
    return *the;
}

void loaded(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    const std::lock_guard<std::mutex> hold(seen().lock);
    const uint64_t context = record.context_id.handle;
    if (record.operation == ROCPROFILER_CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER && record.phase == ROCPROFILER_CALLBACK_PHASE_LOAD)
        seen().kernels[context].insert(
            static_cast<const rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t*>(record.payload)->kernel_id);
    if (record.operation != ROCPROFILER_CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER) return;
    const auto& host = *static_cast<const host_t*>(record.payload);
    client::expect(record.phase == ROCPROFILER_CALLBACK_PHASE_LOAD, "the phase of a host function");
    client::expect(host.size == sizeof host && host.code_object_id > 0 && host.modules.value != 0, "a host function");
    client::expect(seen().kernels[context].count(host.kernel_id) == 1, "a host function before its kernel");
    client::expect(seen().hosts[context].emplace(host.kernel_id, host.host_function_id).second, "a kernel with two host functions");
    if (seen().hosts.begin()->first != context) return;
    const std::string name = host.device_function;
    client::add(name + " at", host.host_function.value);
    client::add(name + " threads", host.thread_limit);
    client::add(name + " block", host.block_dims.x * 100 + host.block_dims.y * 10 + host.block_dims.z);
}

void ends()
{
    const std::lock_guard<std::mutex> hold(seen().lock);
    client::expect(seen().hosts.empty() || (seen().hosts.size() == 2 && seen().hosts.begin()->second == seen().hosts.rbegin()->second),
                   "contexts with different numbers");
    std::set<uint64_t> numbers;
    if (!seen().hosts.empty())
        for (const auto& one : seen().hosts.begin()->second) numbers.insert(one.second);
    client::add("host functions", numbers.size());
    seen().kernels.clear(), seen().hosts.clear();
}
} // namespace

void client::configure()
{
    at_the_end = ends;
    for (int n = 0; n < 2; ++n)
        CALL(rocprofiler_configure_callback_tracing_service(
            new_context(), ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT, nullptr, 0, loaded, nullptr));
}
