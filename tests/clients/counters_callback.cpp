// Counters of chosen dispatches, to a function: the tool is asked before each dispatch, and chooses for one kernel of two.
#include "counting.hpp"

namespace
{
void asked(rocprofiler_dispatch_counting_service_data_t data, rocprofiler_counter_config_id_t* config, rocprofiler_user_data_t* word, void*)
{
    static std::mutex lock;
    static std::map<uint64_t, rocprofiler_counter_config_id_t> configs;
    const auto& info = data.dispatch_info;
    client::expect(data.size == sizeof data && info.size == sizeof info, "the size of a dispatch");
    client::expect(data.start_timestamp == 0 && info.kernel_id != 0 && info.dispatch_id != 0, "a dispatch before its beginning");
    client::add("asked " + std::to_string(info.grid_size.x));
    if (info.grid_size.x != 320) return;
    const std::lock_guard<std::mutex> hold(lock);
    auto known = configs.find(info.agent_id.handle);
    if (known == configs.end())
        known = configs.emplace(info.agent_id.handle, client::config_of(info.agent_id, {"SQ_WAVES", "SQ_INSTS_VALU", "GRBM_COUNT", "simd_count"})).first;
    *config = known->second;
    word->value = info.dispatch_id * 7;
}

void told(rocprofiler_dispatch_counting_service_data_t data, rocprofiler_counter_record_t* values, size_t count, rocprofiler_user_data_t word, void*)
{
    const auto& info = data.dispatch_info;
    std::map<std::string, double> sums;
    std::map<std::string, size_t> places;
    for (size_t n = 0; n < count; ++n) {
        const auto name = client::name_of_value(values[n].id);
        sums[name] += values[n].counter_value;
        places[name] += 1;
        client::expect(values[n].dispatch_id == info.dispatch_id && values[n].agent_id.handle == info.agent_id.handle, "whose a value is");
    }
    client::expect(word.value == info.dispatch_id * 7, "the tool's own word");
    client::expect(data.start_timestamp > 0 && data.start_timestamp < data.end_timestamp, "the times of a dispatch");
    client::expect(sums["SQ_WAVES"] == client::waves_of(info), "SQ_WAVES");
    client::expect(sums["SQ_INSTS_VALU"] == (1 + 26 % 7) * client::waves_of(info), "SQ_INSTS_VALU");
    client::expect(sums["GRBM_COUNT"] > 0 && places["GRBM_COUNT"] == 1, "GRBM_COUNT");
    client::expect(sums["simd_count"] == client::gpus().at(0)->simd_count, "a constant");
    size_t instances = 0;
    CALL(rocprofiler_query_counter_instance_count(info.agent_id, client::counter_named(info.agent_id, "SQ_WAVES"), &instances));
    client::expect(places["SQ_WAVES"] == instances, "a value for each place");
    client::add("counted " + std::to_string(info.grid_size.x));
}
} // namespace

void client::configure()
{
    find_gpus();
    const auto context = new_context();
    CALL(rocprofiler_configure_callback_dispatch_counting_service(context, asked, nullptr, told, nullptr));
}
