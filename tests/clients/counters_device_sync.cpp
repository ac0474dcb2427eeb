// Counters of a whole device between a start and a stop, again and again, on a thread of the tool's: what was counted from one to
// the other, and nothing of before or behind. A file LOG.go says from when to when; LOG.on answers that it counts, LOG.now what it was.
#include "counting.hpp"
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace
{
rocprofiler_context_id_t context = {0};
rocprofiler_counter_config_id_t chosen = {0};
std::atomic<bool> ends{false};
std::atomic<bool> has_ended{false};

void choose(rocprofiler_context_id_t of, rocprofiler_agent_id_t, rocprofiler_device_counting_agent_cb_t set, void*)
{
    if (chosen.handle != 0) CALL(set(of, chosen));
}

void none(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t**, size_t, void*, uint64_t) {}

bool is_asked() { return access(LOG ".go", F_OK) == 0; }
void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

void once(size_t room)
{
    // It may run since the tool was attached, with nothing chosen. After a reading it does not.
    rocprofiler_stop_context(context);
    CALL(rocprofiler_start_context(context));
    std::vector<rocprofiler_counter_record_t> values(room);
    // The first reading tells whether there is a runtime yet.
    auto status = rocprofiler_sample_device_counting_service(context, {}, ROCPROFILER_COUNTER_FLAG_NONE, values.data(), &room);
    if (status == ROCPROFILER_STATUS_SUCCESS) {
        client::expect(room == values.size(), "the number of values");
        for (const auto& value : values)
            client::expect(value.counter_value == 0, "a value of before the start");
        std::ofstream(LOG ".on") << std::endl;
        while (is_asked() && !ends)
            nap();
        CALL(rocprofiler_sample_device_counting_service(context, {}, ROCPROFILER_COUNTER_FLAG_NONE, values.data(), &room));
        double waves = 0;
        for (const auto& value : values) {
            client::expect(client::name_of_value(value.id) == "SQ_WAVES", "the counter of a value");
            waves += value.counter_value;
        }
        client::add("readings");
        std::remove(LOG ".on");
        std::ofstream(LOG ".new") << static_cast<uint64_t>(waves) << std::endl;
        std::rename(LOG ".new", LOG ".now");
    } else {
        client::expect(status == ROCPROFILER_STATUS_ERROR_HSA_NOT_LOADED, "the status without a runtime");
    }
    CALL(rocprofiler_stop_context(context));
}

void sampler()
{
    rocprofiler_counter_info_v1_t info;
    const auto agent = client::gpus().at(0)->id;
    CALL(rocprofiler_query_counter_info(client::counter_named(agent, "SQ_WAVES"), ROCPROFILER_COUNTER_INFO_VERSION_1, &info));
    chosen = client::config_of(agent, {"SQ_WAVES"});
    while (!ends) {
        if (is_asked()) once(info.dimensions_instances_count);
        nap();
    }
    has_ended = true;
}

void end()
{
    ends = true;
    while (!has_ended)
        nap();
}
} // namespace

void client::configure()
{
    // At the exit of the process it asks to be ended, before it would be: once is enough.
    std::atexit([] {
        if (all().me != nullptr) all().finalizer(*all().me);
    });
    find_gpus();
    context = new_context();
    CALL(rocprofiler_configure_device_counting_service(context, new_buffer(context, none), gpus().at(0)->id, choose, nullptr));
    at_the_end = end;
    std::thread([] {
        try {
            sampler();
        } catch (const std::exception& error) {
            client::expect(false, error.what());
            has_ended = true;
        }
    }).detach();
}
