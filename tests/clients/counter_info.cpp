// What there is to count: counters of each agent, what is known of them, and lists of those that are counted together.
#include "counting.hpp"
#include <rocprofiler-sdk/experimental/counters.h>
#include <cstring>
#include <set>

namespace
{
constexpr char DEFINITIONS[] = "rocprofiler-sdk:\n"
                               "  counters-schema-version: 1\n"
                               "  counters:\n"
                               "  - name: SAMPLE_LOADED\n"
                               "    description: twice as many\n"
                               "    properties: []\n"
                               "    definitions:\n"
                               "    - architectures: [gfx942]\n"
                               "      expression: 2*reduce(SQ_WAVES,sum)\n";

void status(rocprofiler_status_t is, rocprofiler_status_t wanted, const char* what)
{
    client::expect(is == wanted, (std::string(what) + ": " + rocprofiler_get_status_name(is)).c_str());
}

// One counter, by both versions and by the older functions.
void look(rocprofiler_agent_id_t agent, rocprofiler_counter_id_t counter)
{
    rocprofiler_counter_info_v0_t old;
    CALL(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_0, &old));
    rocprofiler_counter_info_v1_t info;
    CALL(rocprofiler_query_counter_info(counter, ROCPROFILER_COUNTER_INFO_VERSION_1, &info));
    client::expect(info.size == sizeof info && info.id.handle == counter.handle && old.id.handle == counter.handle, "the id of a counter");
    client::expect(info.name == old.name && std::strlen(info.name) > 0 && std::strlen(info.description) > 0, "the name of a counter");
    const bool has_block = info.block[0] != 0, has_expression = info.expression[0] != 0;
    client::expect(info.is_derived == has_expression && info.is_constant == (!has_block && !has_expression), "what a counter is");
    client::add(info.is_constant ? "constants" : info.is_derived ? "derived" : "basic");

    size_t instances = 0, product = 1;
    CALL(rocprofiler_query_counter_instance_count(agent, counter, &instances));
    // Tools read the dimensions as one array.
    const std::vector<rocprofiler_counter_record_dimension_info_t> dimensions(*info.dimensions, *info.dimensions + info.dimensions_count);
    for (size_t n = 0; n < dimensions.size(); ++n) {
        product *= dimensions[n].instance_size;
        client::expect(info.dimensions[n]->id == dimensions[n].id, "the array of dimensions");
    }
    client::expect(dimensions.size() > 0 && instances == product && info.dimensions_instances_count == product, "the number of values");
    std::set<uint64_t> places;
    for (size_t n = 0; n < info.dimensions_instances_count; ++n) {
        const auto& instance = *info.dimensions_instances[n];
        rocprofiler_counter_id_t of = {0};
        CALL(rocprofiler_query_record_counter_id(instance.instance_id, &of));
        client::expect(of.handle == counter.handle && instance.counter_id == counter.handle, "the counter of a place");
        client::expect(instance.size == sizeof instance && instance.dimensions_count == dimensions.size(), "the size of a place");
        places.insert(instance.instance_id);
        for (size_t d = 0; d < dimensions.size(); ++d) {
            size_t position = ~size_t{0};
            CALL(rocprofiler_query_record_dimension_position(instance.instance_id, dimensions[d].id, &position));
            const auto& told = *instance.dimensions[d];
            client::expect(position == told.index && position < dimensions[d].instance_size, "a number in a dimension");
            client::expect(std::strcmp(told.dimension_name, dimensions[d].name) == 0, "the name of a dimension");
        }
    }
    client::expect(places.size() == product, "places that are different");
    size_t told = 0;
    const auto count = [](rocprofiler_counter_id_t, const rocprofiler_counter_record_dimension_info_t*, size_t number, void* to) {
        *static_cast<size_t*>(to) = number;
        return ROCPROFILER_STATUS_SUCCESS;
    };
    CALL(rocprofiler_iterate_counter_dimensions(counter, count, &told));
    client::expect(told == dimensions.size(), "the dimensions of a counter");
}

size_t values_of(rocprofiler_agent_id_t agent, const char* name)
{
    size_t count = 0;
    CALL(rocprofiler_query_counter_instance_count(agent, client::counter_named(agent, name), &count));
    return count;
}
} // namespace

void client::configure()
{
    // Definitions are taken before anybody asks, and not after.
    CALL(rocprofiler_load_counter_definition(DEFINITIONS, sizeof DEFINITIONS - 1, ROCPROFILER_COUNTER_FLAG_APPEND_DEFINITION));
    status(rocprofiler_load_counter_definition("x", 1, ROCPROFILER_COUNTER_FLAG_APPEND_DEFINITION),
           ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "what is no definition");
    const auto other = find_gpus();
    const auto agent = gpus().at(0)->id;
    auto all = counters_of(agent);
    status(rocprofiler_load_counter_definition(DEFINITIONS, sizeof DEFINITIONS - 1, ROCPROFILER_COUNTER_FLAG_NONE),
           ROCPROFILER_STATUS_ERROR, "a late definition");
    std::vector<rocprofiler_counter_id_t> none;
    status(rocprofiler_iterate_agent_supported_counters(other, note_counters, &none),
           ROCPROFILER_STATUS_ERROR_AGENT_ARCH_NOT_SUPPORTED, "counters of a CPU");
    status(rocprofiler_iterate_agent_supported_counters({77}, note_counters, &none), ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND,
           "counters of no agent");

    for (const auto counter : all)
        look(agent, counter);
    add("values of SQ_WAVES", values_of(agent, "SQ_WAVES"));
    add("values of GRBM_COUNT", values_of(agent, "GRBM_COUNT"));
    add("values of SAMPLE_LOADED", values_of(agent, "SAMPLE_LOADED"));

    rocprofiler_counter_id_t made = {0};
    const auto create = [&](const char* name, const char* expression) {
        return rocprofiler_create_counter(name, std::strlen(name), expression, std::strlen(expression), "", 0, agent, &made);
    };
    CALL(create("SAMPLE_MADE", "SAMPLE_LOADED/2"));
    expect(counters_of(agent).size() == all.size() + 1 && name_of(made) == "SAMPLE_MADE", "a counter that was made");
    look(agent, made);
    status(create("SAMPLE_MADE", "1"), ROCPROFILER_STATUS_ERROR_INVALID_ARGUMENT, "a counter twice");
    status(create("SAMPLE_BAD", "reduce("), ROCPROFILER_STATUS_ERROR_AST_GENERATION_FAILED, "half an expression");

    rocprofiler_counter_info_v1_t info;
    status(rocprofiler_query_counter_info({65535}, ROCPROFILER_COUNTER_INFO_VERSION_1, &info), ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND,
           "no counter");
    status(rocprofiler_query_counter_info(made, ROCPROFILER_COUNTER_INFO_VERSION_LAST, &info), ROCPROFILER_STATUS_ERROR_INCOMPATIBLE_ABI,
           "a version that there is not");

    const auto base = config_of(agent, {"SQ_WAVES", "GRBM_COUNT", "SQ_WAVES", "simd_count"});
    rocprofiler_counter_id_t more[] = {counter_named(agent, "GRBM_GUI_ACTIVE")};
    auto copy = base;
    CALL(rocprofiler_create_counter_config(agent, more, 1, &copy));
    expect(copy.handle != base.handle, "a copy of a list");
    // GRBM counts two at once, and has them.
    more[0] = counter_named(agent, "GRBM_SPI_BUSY");
    status(rocprofiler_create_counter_config(agent, more, 1, &copy), ROCPROFILER_STATUS_ERROR_EXCEEDS_HW_LIMIT, "too many");
    more[0] = {65535};
    copy = {0};
    status(rocprofiler_create_counter_config(agent, more, 1, &copy), ROCPROFILER_STATUS_ERROR_COUNTER_NOT_FOUND, "an unknown counter");
    more[0] = {1};
    status(rocprofiler_create_counter_config(agent, more, 1, &copy), ROCPROFILER_STATUS_ERROR_METRIC_NOT_VALID_FOR_AGENT,
           "another agent's counter");
    more[0] = made;
    status(rocprofiler_create_counter_config({77}, more, 1, &copy), ROCPROFILER_STATUS_ERROR_AGENT_NOT_FOUND, "a list of no agent");
    CALL(rocprofiler_destroy_counter_config(base));
    CALL(rocprofiler_destroy_counter_config(base));

    // Both ways of counting exclude each other, and each needs what it names.
    const auto context = new_context();
    const auto asked = [](rocprofiler_dispatch_counting_service_data_t, rocprofiler_counter_config_id_t*, rocprofiler_user_data_t*, void*) {};
    const auto told = [](rocprofiler_dispatch_counting_service_data_t, rocprofiler_counter_record_t*, size_t, rocprofiler_user_data_t,
                         void*) {};
    const auto choose = [](rocprofiler_context_id_t, rocprofiler_agent_id_t, rocprofiler_device_counting_agent_cb_t, void*) {};
    status(rocprofiler_configure_callback_dispatch_counting_service({77}, asked, nullptr, told, nullptr),
           ROCPROFILER_STATUS_ERROR_CONTEXT_INVALID, "no context");
    status(rocprofiler_configure_buffer_dispatch_counting_service(context, {77}, asked, nullptr),
           ROCPROFILER_STATUS_ERROR_BUFFER_NOT_FOUND, "no buffer");
    CALL(rocprofiler_configure_callback_dispatch_counting_service(context, asked, nullptr, told, nullptr));
    status(rocprofiler_configure_device_counting_service(context, {0}, agent, choose, nullptr),
           ROCPROFILER_STATUS_ERROR_AGENT_DISPATCH_CONFLICT, "both ways of counting");
    size_t room = 1;
    rocprofiler_counter_record_t record;
    status(rocprofiler_sample_device_counting_service(context, {}, ROCPROFILER_COUNTER_FLAG_NONE, &record, &room),
           ROCPROFILER_STATUS_ERROR_CONTEXT_NOT_STARTED, "a reading before the start");
}
