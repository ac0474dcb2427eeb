// What the clients that count have in common: GPUs, and counters by their names.
#pragma once

#include "client.hpp"

namespace client
{
inline auto& gpus()
{
    static auto* const the = new std::vector<const rocprofiler_agent_v0_t*>;
    return *the;
}

inline rocprofiler_status_t note_gpus(rocprofiler_agent_version_t, const void** list, size_t count, void* other)
{
    for (size_t n = 0; n < count; ++n) {
        const auto* agent = static_cast<const rocprofiler_agent_v0_t*>(list[n]);
        if (agent->type == ROCPROFILER_AGENT_TYPE_GPU)
            gpus().push_back(agent);
        else if (other != nullptr)
            *static_cast<rocprofiler_agent_id_t*>(other) = agent->id;
    }
    return ROCPROFILER_STATUS_SUCCESS;
}

// Finds the GPUs; returns another agent.
inline rocprofiler_agent_id_t find_gpus()
{
    rocprofiler_agent_id_t other = {0};
    CALL(rocprofiler_query_available_agents(ROCPROFILER_AGENT_INFO_VERSION_0, note_gpus, sizeof(rocprofiler_agent_t), &other));
    return other;
}

inline rocprofiler_status_t
note_counters(rocprofiler_agent_id_t, rocprofiler_counter_id_t* counters, size_t count, void* to)
{
    auto& all = *static_cast<std::vector<rocprofiler_counter_id_t>*>(to);
    all.assign(counters, counters + count);
    return ROCPROFILER_STATUS_SUCCESS;
}

inline std::vector<rocprofiler_counter_id_t> counters_of(rocprofiler_agent_id_t agent)
{
    std::vector<rocprofiler_counter_id_t> all;
    CALL(rocprofiler_iterate_agent_supported_counters(agent, note_counters, &all));
    return all;
}

inline std::string name_of(rocprofiler_counter_id_t counter)
{
    rocprofiler_counter_info_v0_t info;
    CALL(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_0, &info));
    return info.name;
}

inline rocprofiler_counter_id_t counter_named(rocprofiler_agent_id_t agent, const std::string& name)
{
    for (const auto counter : counters_of(agent))
        if (name_of(counter) == name) return counter;
    expect(false, "a counter that is not there");
    return {0};
}

inline rocprofiler_counter_config_id_t config_of(rocprofiler_agent_id_t agent, const std::vector<std::string>& names)
{
    std::vector<rocprofiler_counter_id_t> counters;
    for (const auto& name : names)
        counters.push_back(counter_named(agent, name));
    rocprofiler_counter_config_id_t config = {0};
    CALL(rocprofiler_create_counter_config(agent, counters.data(), counters.size(), &config));
    return config;
}

// The counter of a value.
inline std::string name_of_value(rocprofiler_counter_instance_id_t id)
{
    rocprofiler_counter_id_t counter = {0};
    CALL(rocprofiler_query_record_counter_id(id, &counter));
    return name_of(counter);
}

// What the modelled GPU's rules make of a dispatch.
inline double waves_of(const rocprofiler_kernel_dispatch_info_t& info)
{
    const auto groups = (info.grid_size.x + info.workgroup_size.x - 1) / info.workgroup_size.x;
    return static_cast<double>(groups * ((info.workgroup_size.x + 63) / 64));
}
} // namespace client
