// Counters of every dispatch, into a buffer: a header with the dispatch, and its values behind it.
#include "counting.hpp"

namespace
{
void asked(rocprofiler_dispatch_counting_service_data_t data, rocprofiler_counter_config_id_t* config, rocprofiler_user_data_t*, void*)
{
    static std::mutex lock;
    static std::map<uint64_t, rocprofiler_counter_config_id_t> configs;
    const auto agent = data.dispatch_info.agent_id;
    const std::lock_guard<std::mutex> hold(lock);
    if (configs.count(agent.handle) == 0) configs[agent.handle] = client::config_of(agent, {"SQ_WAVES"});
    *config = configs[agent.handle];
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::expect(dropped == 0, "records were dropped");
    rocprofiler_dispatch_counting_service_record_t of = {};
    uint64_t left = 0;
    double waves = 0;
    for (size_t n = 0; n < count; ++n) {
        const auto& header = *headers[n];
        client::expect(header.category == ROCPROFILER_BUFFER_CATEGORY_COUNTERS, "the category of a record");
        if (header.kind == ROCPROFILER_COUNTER_RECORD_PROFILE_COUNTING_DISPATCH_HEADER) {
            client::expect(left == 0, "a header among values");
            of = *static_cast<rocprofiler_dispatch_counting_service_record_t*>(header.payload);
            client::expect(of.size == sizeof of && of.num_records > 0, "a header");
            client::expect(of.start_timestamp > 0 && of.start_timestamp < of.end_timestamp, "the times of a dispatch");
            client::expect(of.correlation_id.internal > 0, "a dispatch without a call");
            left = of.num_records;
            waves = 0;
            continue;
        }
        const auto& value = *static_cast<rocprofiler_counter_record_t*>(header.payload);
        client::expect(header.kind == ROCPROFILER_COUNTER_RECORD_VALUE && left > 0, "a value without a header");
        client::expect(value.dispatch_id == of.dispatch_info.dispatch_id, "whose a value is");
        waves += value.counter_value;
        if (--left > 0) continue;
        client::expect(waves == client::waves_of(of.dispatch_info), "SQ_WAVES");
        client::add("counted " + std::to_string(of.dispatch_info.grid_size.x));
    }
    client::expect(left == 0, "fewer values than the header says");
}
} // namespace

void client::configure()
{
    find_gpus();
    const auto context = new_context();
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_configure_buffer_dispatch_counting_service(context, buffer, asked, nullptr));
}
