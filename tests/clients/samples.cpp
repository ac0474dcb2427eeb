// Samples of program counters, as AMD's sample does it: what each GPU offers is asked for, the method that SAMPLES_METHOD names
// (host_trap or stochastic) is configured with the smallest interval of at least 4096 units (cycles) or 5 (microseconds), and a
// sample's place is its code object and an offset in it.
#include "client.hpp"
#include <cstdlib>
#include <cstring>

namespace
{
std::vector<rocprofiler_pc_sampling_configuration_t>& offered()
{
    static auto* const the = new std::vector<rocprofiler_pc_sampling_configuration_t>;
    return *the;
}

template <typename Sample>
void sample(const void* payload)
{
    const auto& one = *static_cast<const Sample*>(payload);
    client::expect(one.size == sizeof one, "the size of a sample");
    client::expect(one.dispatch_id > 0 && one.correlation_id.internal > 0, "a sample without a dispatch");
    client::expect(one.pc.code_object_id > 0 && one.timestamp > 0, "a sample without a code object");
    client::expect(one.exec_mask == ~0ull && one.hw_id.queue_id == 1, "what a sample says about its wave");
    client::add("at " + std::to_string(one.pc.code_object_offset));
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::expect(dropped == 0, "records were dropped");
    for (size_t n = 0; n < count; ++n) {
        const rocprofiler_record_header_t& header = *headers[n];
        client::expect(header.category == ROCPROFILER_BUFFER_CATEGORY_PC_SAMPLING, "the category of a record");
        switch (header.kind) {
        case ROCPROFILER_PC_SAMPLING_RECORD_HOST_TRAP_V0_SAMPLE:
            sample<rocprofiler_pc_sampling_record_host_trap_v0_t>(header.payload);
            break;
        case ROCPROFILER_PC_SAMPLING_RECORD_STOCHASTIC_V0_SAMPLE: {
            sample<rocprofiler_pc_sampling_record_stochastic_v0_t>(header.payload);
            const auto& one = *static_cast<const rocprofiler_pc_sampling_record_stochastic_v0_t*>(header.payload);
            client::expect(one.inst_type == ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_VALU, "the type of an instruction");
            const bool waits = one.snapshot.reason_not_issued != ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NONE;
            client::expect(waits != (one.wave_issued != 0), "a wave that issues and waits");
            const bool arbiter = waits ? one.snapshot.arb_state_stall_valu : one.snapshot.arb_state_issue_valu;
            client::expect(arbiter, "the arbiter's state");
            break;
        }
        case ROCPROFILER_PC_SAMPLING_RECORD_INVALID_SAMPLE: client::add("invalid"); break;
        default: client::expect(false, "the kind of a record");
        }
    }
}

rocprofiler_status_t configurations(const rocprofiler_pc_sampling_configuration_t* all, size_t count, void*)
{
    offered().assign(all, all + count);
    return ROCPROFILER_STATUS_SUCCESS;
}

rocprofiler_status_t agents(rocprofiler_agent_version_t, const void** list, size_t count, void* data)
{
    for (size_t n = 0; n < count; ++n) {
        const auto* agent = static_cast<const rocprofiler_agent_v0_t*>(list[n]);
        if (agent->type == ROCPROFILER_AGENT_TYPE_GPU) *static_cast<rocprofiler_agent_id_t*>(data) = agent->id;
    }
    return ROCPROFILER_STATUS_SUCCESS;
}

void stop()
{
    for (rocprofiler_context_id_t context : client::all().contexts)
        rocprofiler_stop_context(context);
}
} // namespace

void client::configure()
{
    before_the_end = stop;
    rocprofiler_agent_id_t gpu = {0};
    CALL(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, agents, sizeof(rocprofiler_agent_t), &gpu));
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_query_pc_sampling_agent_configurations(gpu, configurations, nullptr));
    expect(offered().size() == 2, "the number of configurations");
    const char* method = std::getenv("SAMPLES_METHOD");
    const bool traps = method == nullptr || std::strcmp(method, "stochastic") != 0;
    const auto wanted = traps ? ROCPROFILER_PC_SAMPLING_METHOD_HOST_TRAP : ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC;
    for (const auto& one : offered()) {
        expect(one.size == sizeof one, "the size of a configuration");
        if (one.method != wanted) continue;
        const bool is_power = (one.flags & ROCPROFILER_PC_SAMPLING_CONFIGURATION_FLAGS_INTERVAL_POW2) != 0;
        expect(is_power != traps, "the flags of a configuration");
        // What is not offered is refused.
        const auto refused = rocprofiler_configure_pc_sampling_service(context, gpu, one.method, one.unit, one.min_interval - 1, buffer, 0);
        expect(refused == ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "an interval that is not offered");
        CALL(rocprofiler_configure_pc_sampling_service(context, gpu, one.method, one.unit, traps ? 5 : 4096, buffer, 0));
        const auto again = rocprofiler_configure_pc_sampling_service(context, gpu, one.method, one.unit, traps ? 5 : 4096, buffer, 0);
        expect(again == ROCPROFILER_STATUS_ERROR_SERVICE_ALREADY_CONFIGURED, "an agent twice");
    }
}
