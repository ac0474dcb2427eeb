// The services that count with arguments that are wrong, one at a time: null, unknown ids, too little room, another state than is
// needed. Each has a status of its own, and nothing is left configured by it.
#include "counting.hpp"
#include <atomic>
#include <chrono>
#include <thread>

namespace
{
using dispatch_t = rocprofiler_dispatch_counting_service_data_t;

void asked(dispatch_t, rocprofiler_counter_config_id_t*, rocprofiler_user_data_t*, void*) {}
void told(dispatch_t, rocprofiler_counter_record_t*, size_t, rocprofiler_user_data_t, void*) {}
void traced(rocprofiler_callback_tracing_record_t, rocprofiler_user_data_t*, void*) {}
void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t**, size_t, void*, uint64_t) {}

rocprofiler_counter_config_id_t config = {0};

void status(rocprofiler_status_t is, rocprofiler_status_t wanted, const char* what)
{
    client::expect(is == wanted, what);
    client::add("statuses");
}

void choose(rocprofiler_context_id_t of, rocprofiler_agent_id_t, rocprofiler_device_counting_agent_cb_t set, void*)
{
    status(set({0}, config), ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID, "a choice for no context");
    status(set(of, {0}), ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND, "no list");
    status(set(of, {9999}), ROCPROFILER_STATUS_ERROR_PROFILE_NOT_FOUND, "a list that there is not");
    CALL(set(of, config));
}

rocprofiler_context_id_t device = {0}, late = {0};
std::atomic<bool> has_ended{false};

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

void in_the_session()
{
    rocprofiler_counter_record_t values[64];
    size_t count = 64;
    const auto sample = [&](rocprofiler_context_id_t of, int flags, rocprofiler_counter_record_t* to, size_t* room) {
        return rocprofiler_sample_device_counting_service(of, {}, static_cast<rocprofiler_counter_flag_t>(flags), to, room);
    };
    const auto is_ready = [&] {
        return sample(device, 0, nullptr, nullptr) == ROCPROFILER_STATUS_SUCCESS;
    };
    while (!is_ready())
        nap();
    status(sample({0}, 0, values, &count), ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_FOUND, "a reading of no context");
    status(sample({4711}, 0, values, &count), ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED, "a reading of an unknown context");
    status(sample(device, 0, values, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "values without their number");
    status(sample(device, ROCPROFILER_COUNTER_FLAG_ASYNC, values, &count), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT,
           "values of a reading that is not waited for");
    count = 0;
    status(sample(device, 0, values, &count), ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES, "no room");
    // There is a runtime in an attach, and the counters are read; with too little room it is said how much is needed.
    count = 1;
    status(sample(device, 0, values, &count), ROCPROFILER_STATUS_ERROR_OUT_OF_RESOURCES, "too little room");
    client::expect(count > 1, "how much room is needed");
    status(sample(device, 0, values, &count), ROCPROFILER_STATUS_SUCCESS, "enough room");
    status(sample(device, ROCPROFILER_COUNTER_FLAG_ASYNC, nullptr, nullptr), ROCPROFILER_STATUS_SUCCESS, "into the buffer alone");
    status(rocprofiler_start_context(device), ROCPROFILER_STATUS_SUCCESS, "a start of what has started");
    status(sample(late, 0, values, &count), ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID, "a context that counts for no device");
    CALL(rocprofiler_stop_context(device));
    status(sample(device, 0, values, &count), ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED, "a reading of what has stopped");
}
} // namespace

void client::configure()
{
    const auto cpu = find_gpus();
    const auto gpu = gpus().at(0)->id;
    config = config_of(gpu, {"SQ_WAVES"});
    late = new_context();
    device = new_context();
    const auto buffer = new_buffer(device, records);

    const auto by_buffer = [](rocprofiler_context_id_t context, rocprofiler_buffer_id_t into, rocprofiler_dispatch_counting_service_cb_t ask) {
        return rocprofiler_configure_buffer_dispatch_counting_service(context, into, ask, nullptr);
    };
    status(by_buffer(late, buffer, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nobody is asked");
    status(by_buffer(late, {9999}, asked), ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND, "an unknown buffer");
    status(by_buffer({9999}, buffer, asked), ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID, "an unknown context");
    const auto by_call = [](rocprofiler_context_id_t context, rocprofiler_dispatch_counting_service_cb_t ask, rocprofiler_dispatch_counting_record_cb_t tell) {
        return rocprofiler_configure_callback_dispatch_counting_service(context, ask, nullptr, tell, nullptr);
    };
    status(by_call(late, nullptr, told), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nobody is asked");
    status(by_call(late, asked, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nobody is told");
    status(by_call({9999}, asked, told), ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID, "an unknown context");

    const auto of_device = [](rocprofiler_context_id_t context, rocprofiler_buffer_id_t into, rocprofiler_agent_id_t agent, rocprofiler_device_counting_service_cb_t ask) {
        return rocprofiler_configure_device_counting_service(context, into, agent, ask, nullptr);
    };
    status(of_device(device, buffer, gpu, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nobody chooses");
    status(of_device(device, {9999}, gpu, choose), ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND, "an unknown buffer");
    status(of_device({9999}, buffer, gpu, choose), ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID, "an unknown context");
    status(of_device(device, buffer, {77}, choose), ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND, "an unknown agent");
    status(of_device(device, buffer, gpu, choose), ROCPROFILER_STATUS_SUCCESS, "all is right");
    status(of_device(device, buffer, gpu, choose), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "an agent twice");
    status(by_call(device, asked, told), ROCPROFILER_STATUS_ERROR_AGENT_DISPATCH_CONFLICT, "dispatches where devices are counted");

    size_t instances = 0;
    rocprofiler_counter_config_id_t made = {0};
    const auto counter = counter_named(gpu, "SQ_WAVES");
    rocprofiler_counter_id_t list[] = {counter};
    status(rocprofiler_create_counter_config(gpu, nullptr, 1, &made), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "no counters");
    status(rocprofiler_create_counter_config(gpu, list, 1, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nowhere to");
    status(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_0, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nowhere to");
    status(rocprofiler_query_counter_instance_count(gpu, counter, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nowhere to");
    status(rocprofiler_query_counter_instance_count({77}, counter, &instances), ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND, "an unknown agent");
    status(rocprofiler_query_counter_instance_count(gpu, {65535}, &instances), ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND, "an unknown counter");
    status(rocprofiler_query_counter_instance_count(cpu, counter, &instances), ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND, "another agent's counter");
    status(rocprofiler_query_record_counter_id(0, nullptr), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "nowhere to");
    CALL(rocprofiler_query_counter_instance_count(gpu, counter, &instances));
    // A context that runs and counts nothing.
    CALL(rocprofiler_configure_callback_tracing_service(late, ROCPROFILER_CALLBACK_TRACING_HIP_RUNTIME_API, nullptr, 0, traced, nullptr));
    at_the_end = [] {
        while (!has_ended)
            nap();
    };
    std::thread([] {
        try {
            in_the_session();
        } catch (const std::exception& error) {
            client::expect(false, error.what());
        }
        has_ended = true;
    }).detach();
}
