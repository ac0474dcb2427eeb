// Every counter that the GPU has, one dispatch each: the list is made while a dispatch is chosen for, and its values are to be there
// once for each place of the counter. The buffer is smaller than what many counters have to say. LOG.all says that all were asked for.
#include "counting.hpp"
#include <set>

namespace
{
struct state_t {
    std::mutex lock;
    std::vector<rocprofiler_counter_id_t> left;
    bool is_begun = false;
    // By counter: the dispatch that it was asked for, and how many values it is to have.
    std::map<uint64_t, uint64_t> dispatches;
    std::map<uint64_t, size_t> wanted;
    std::map<uint64_t, std::set<uint64_t>> places;
};

// Never destroyed: the thread that calls back may outlive this library's statics.
state_t& state()
{
    static auto* const the = new state_t;
    return *the;
}

void asked(rocprofiler_dispatch_counting_service_data_t data, rocprofiler_counter_config_id_t* config, rocprofiler_user_data_t*, void*)
{
    auto& all = state();
    const std::lock_guard<std::mutex> hold(all.lock);
    const auto agent = data.dispatch_info.agent_id;
    if (!all.is_begun) {
        all.is_begun = true;
        all.left = client::counters_of(agent);
        client::add("counters", all.left.size());
    }
    if (all.left.empty()) return;
    const auto counter = all.left.back();
    all.left.pop_back();
    rocprofiler_counter_info_v1_t info;
    CALL(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_1, &info));
    auto list = counter;
    rocprofiler_counter_config_id_t made = {0};
    // Some need more than a GPU counts at once.
    if (rocprofiler_create_counter_config(agent, &list, 1, &made) == ROCPROFILER_STATUS_SUCCESS) {
        *config = made;
        all.wanted[counter.handle] = info.dimensions_instances_count;
        all.dispatches[counter.handle] = data.dispatch_info.dispatch_id;
    }
    if (all.left.empty()) std::ofstream(LOG ".all") << std::endl;
}

void records(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t** headers, size_t count, void*, uint64_t dropped)
{
    client::expect(dropped == 0, "records were dropped");
    auto& all = state();
    const std::lock_guard<std::mutex> hold(all.lock);
    for (size_t n = 0; n < count; ++n) {
        const auto& header = *headers[n];
        client::expect(header.category == ROCPROFILER_BUFFER_CATEGORY_COUNTERS, "the category of a record");
        if (header.kind != ROCPROFILER_COUNTER_RECORD_VALUE) continue;
        const auto& value = *static_cast<rocprofiler_counter_record_t*>(header.payload);
        rocprofiler_counter_id_t counter = {0};
        CALL(rocprofiler_query_record_counter_id(value.id, &counter));
        client::expect(all.dispatches[counter.handle] == value.dispatch_id, "the dispatch that a counter was asked for");
        client::expect(all.places[counter.handle].insert(value.id).second, "a place twice");
    }
}

void end()
{
    auto& all = state();
    const std::lock_guard<std::mutex> hold(all.lock);
    for (const auto& [counter, wanted] : all.wanted) {
        const auto found = all.places[counter].size();
        client::expect(found == wanted, ("the places of " + client::name_of({counter}) + ": " + std::to_string(found) + " of " + std::to_string(wanted)).c_str());
        client::add("counted");
        client::add("values", found);
    }
    for (const auto& [counter, places] : all.places)
        client::expect(places.empty() || all.wanted.count(counter) == 1, "values that nobody asked for");
}
} // namespace

void client::configure()
{
    const auto context = new_context();
    const auto buffer = new_buffer(context, records, 4096, 2048);
    CALL(rocprofiler_configure_buffer_dispatch_counting_service(context, buffer, asked, nullptr));
    at_the_end = end;
}
