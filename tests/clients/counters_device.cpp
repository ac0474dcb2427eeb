// Counters of a whole device: chosen when the context starts, read again and again on a thread of the tool's, with all values to
// the caller and into a buffer. What was read last is in LOG.now.
#include "counting.hpp"
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

namespace
{
rocprofiler_context_id_t context = {0};
std::atomic<size_t> buffered{0};
constexpr uint64_t WORD = 4711;

void choose(rocprofiler_context_id_t of, rocprofiler_agent_id_t agent, rocprofiler_device_counting_agent_cb_t set, void* data)
{
    static const auto config = client::config_of(agent, {"SQ_WAVES", "GRBM_COUNT", "simd_count"});
    client::expect(of.handle == context.handle && data == &context, "whose choice it is");
    CALL(set(of, config));
    client::expect(set(of, {4711}) == ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND, "a list that there is not");
    client::add("chosen");
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t)
{
    for (size_t n = 0; n < count; ++n) {
        client::expect(headers[n]->category == ROCPROFILER_BUFFER_CATEGORY_COUNTERS
                           && headers[n]->kind == ROCPROFILER_COUNTER_RECORD_VALUE,
                       "the kind of a record");
        const auto& value = *static_cast<rocprofiler_counter_record_t*>(headers[n]->payload);
        client::expect(value.user_data.value == WORD, "the word in a buffer");
        ++buffered;
    }
}

rocprofiler_status_t sample(rocprofiler_counter_record_t* values, size_t* count)
{
    rocprofiler_user_data_t word;
    word.value = WORD;
    return rocprofiler_sample_device_counting_service(context, word, ROCPROFILER_COUNTER_FLAG_NONE, values, count);
}

// False while there is nothing to read: no runtime yet, or no session any more.
bool read(uint64_t* waves)
{
    rocprofiler_counter_record_t values[64];
    size_t count = 1;
    // Too little room: it is told how much is needed.
    if (sample(values, &count) != ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES) return false;
    const size_t needed = count;
    client::expect(needed > 1 && needed <= 64, "how much room there must be");
    if (sample(values, &count) != ROCPROFILER_STATUS_SUCCESS) return false;
    rocprofiler_user_data_t word;
    word.value = WORD;
    const auto later =
        rocprofiler_sample_device_counting_service(context, word, ROCPROFILER_COUNTER_FLAG_ASYNC, nullptr, nullptr);
    // The session may end between two readings.
    if (later != ROCPROFILER_STATUS_SUCCESS) return false;
    client::expect(count == needed, "the number of values");
    std::map<std::string, double> sums;
    for (size_t n = 0; n < count; ++n) {
        sums[client::name_of_value(values[n].id)] += values[n].counter_value;
        client::expect(values[n].user_data.value == WORD && values[n].agent_id.handle == client::gpus().at(0)->id.handle, "whose a value is");
    }
    client::expect(sums["GRBM_COUNT"] > 0, "GRBM_COUNT");
    client::expect(sums["simd_count"] == client::gpus().at(0)->simd_count, "a constant");
    *waves = static_cast<uint64_t>(sums["SQ_WAVES"]);
    return true;
}

std::atomic<bool> ends{false};
std::atomic<uint64_t> last{0};

void sampler()
{
    while (!ends) {
        uint64_t waves = 0;
        if (read(&waves)) {
            last = waves;
            std::ofstream(LOG ".new") << waves << std::endl;
            std::rename(LOG ".new", LOG ".now");
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

void end()
{
    client::expect(buffered > 0, "values in the buffer");
    client::add("waves", last.exchange(0));
    buffered = 0;
}
} // namespace

void client::configure()
{
    find_gpus();
    context = new_context();
    const auto buffer = new_buffer(context, records);
    CALL(rocprofiler_configure_device_counting_service(context, buffer, gpus().at(0)->id, choose, &context));
    expect(rocprofiler_configure_device_counting_service(context, buffer, gpus().at(0)->id, choose, nullptr)
               == ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT,
           "an agent twice");
    at_the_end = end;
    std::thread(sampler).detach();
}
