// Runtimes' tables: the client puts functions of its own into HIP's and HSA's, which count and pass on.
#include "client.hpp"
#include <hip/amd_detail/hip_api_trace.hpp>
#include <hsa/hsa_api_trace.h>

namespace
{
// What the slots held: the runtime's functions, or what the SDK put over them.
decltype(HipDispatchTable::hipMemcpyAsync_fn) copy_below = nullptr;
decltype(HipDispatchTable::hipModuleLaunchKernel_fn) launch_below = nullptr;
decltype(CoreApiTable::hsa_signal_load_relaxed_fn) load_below = nullptr;

hipError_t copy(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t stream)
{
    client::add("hipMemcpyAsync");
    return copy_below(to, from, size, kind, stream);
}

hipError_t launch(hipFunction_t function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                  unsigned int shared, hipStream_t stream, void** parameters, void** extra)
{
    client::add("hipModuleLaunchKernel");
    return launch_below(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

hsa_signal_value_t load(hsa_signal_t signal)
{
    client::add("hsa_signal_load_relaxed");
    return load_below(signal);
}

template <typename Function> void put(Function& slot, Function& below, Function ours)
{
    client::expect(slot != nullptr && slot != ours, "what a slot holds");
    below = slot;
    slot = ours;
}

void given(rocprofiler_intercept_table_t kind, uint64_t version, uint64_t instance, void** tables, uint64_t count, void* data)
{
    client::expect(count == 1 && tables[0] != nullptr && version > 0 && instance == 0 && data == &copy_below, "a table");
    if (kind == ROCPROFILER_HIP_RUNTIME_TABLE) {
        auto* const hip = static_cast<HipDispatchTable*>(tables[0]);
        client::expect(hip->size > offsetof(HipDispatchTable, hipModuleLaunchKernel_fn), "HIP's table");
        put(hip->hipMemcpyAsync_fn, copy_below, &copy);
        put(hip->hipModuleLaunchKernel_fn, launch_below, &launch);
        client::add("table of HIP");
    }
    else {
        auto* const hsa = static_cast<HsaApiTable*>(tables[0]);
        client::expect(kind == ROCPROFILER_HSA_TABLE && hsa->core_ != nullptr, "HSA's table");
        put(hsa->core_->hsa_signal_load_relaxed_fn, load_below, &load);
        client::add("table of HSA");
    }
}

#ifdef TRACED
void traced(rocprofiler_callback_tracing_record_t record, rocprofiler_user_data_t*, void*)
{
    if (record.phase != ROCPROFILER_CALLBACK_PHASE_EXIT) return;
    const bool copies = record.operation == ROCPROFILER_HIP_RUNTIME_API_ID_hipMemcpyAsync;
    client::add(copies ? "traced hipMemcpyAsync" : "traced hipModuleLaunchKernel");
}
#endif
} // namespace

void client::configure()
{
    CALL(rocprofiler_at_intercept_table_registration(given, ROCPROFILER_HSA_TABLE | ROCPROFILER_HIP_RUNTIME_TABLE, &copy_below));
#ifdef TRACED
    const rocprofiler_tracing_operation_t operations[] = {
        ROCPROFILER_HIP_RUNTIME_API_ID_hipMemcpyAsync, ROCPROFILER_HIP_RUNTIME_API_ID_hipModuleLaunchKernel};
    CALL(rocprofiler_configure_callback_tracing_service(
        new_context(), ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, operations, 2, traced, nullptr));
#endif
}
