// What the C++ headers compute, checked by the program itself: it prints "well" and ends with 0, or says what is wrong.
// Its argument: a code object for gfx942 with the kernels vadd and scale.
#include <rocprofiler-sdk/cxx/codeobj/code_printing.hpp>
#include <rocprofiler-sdk/cxx/codeobj/segment.hpp>
#include <rocprofiler-sdk/cxx/container/c_array.hpp>
#include <rocprofiler-sdk/cxx/constants.hpp>
#include <rocprofiler-sdk/cxx/details/join.hpp>
#include <rocprofiler-sdk/cxx/details/mpl.hpp>
#include <rocprofiler-sdk/cxx/details/name_info.hpp>
#include <rocprofiler-sdk/cxx/details/tokenize.hpp>
#include <rocprofiler-sdk/cxx/enum_string.hpp>
#include <rocprofiler-sdk/cxx/hash.hpp>
#include <rocprofiler-sdk/cxx/name_info.hpp>
#include <rocprofiler-sdk/cxx/operators.hpp>
#include <rocprofiler-sdk/cxx/serialization.hpp>
#include <rocprofiler-sdk/cxx/utility.hpp>
#include <rocprofiler-sdk/cxx/version.hpp>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>
#include <vector>

namespace
{
#define CHECK(...)                                                                                                     \
    if (!(__VA_ARGS__)) throw std::runtime_error("line " + std::to_string(__LINE__) + ": " #__VA_ARGS__)

template <typename Id>
void is_ordered()
{
    const Id one{1};
    const Id two{2};
    CHECK(one < two && one <= two && one != two && two > one && two >= one && one == one);
    CHECK(!(one > one) && !(one < one) && one >= one && one <= one);
    CHECK((std::set<Id>{two, one, two}.size() == 2));
    CHECK((std::unordered_set<Id>{two, one, two}.size() == 2));
}

void comparisons()
{
    is_ordered<rocprofiler_context_id_t>();
    is_ordered<rocprofiler_agent_id_t>();
    is_ordered<rocprofiler_queue_id_t>();
    is_ordered<rocprofiler_stream_id_t>();
    is_ordered<rocprofiler_buffer_id_t>();
    is_ordered<rocprofiler_counter_id_t>();
    is_ordered<rocprofiler_profile_config_id_t>();
    is_ordered<rocprofiler_callback_thread_t>();
    is_ordered<rocprofiler_address_t>();
    is_ordered<hsa_agent_t>();
    CHECK(rocprofiler::sdk::operators::equal(rocprofiler_agent_id_t{3}, rocprofiler_agent_id_t{3}));
    CHECK(rocprofiler::sdk::operators::less(rocprofiler_agent_id_t{3}, rocprofiler_agent_id_t{4}));
    // By volume, then by x, y, z; and volumes beyond 32 bits.
    const rocprofiler_dim3_t flat{8, 1, 1}, cube{2, 2, 2}, big{65536, 65536, 2};
    CHECK(flat != cube && cube < flat && flat < big && cube < big && flat == rocprofiler_dim3_t{8, 1, 1});
    rocprofiler_agent_v0_t first{}, second{};
    first.id.handle = 1, second.id.handle = 2, second.cu_count = 7;
    CHECK(first < second && first != second && first == first);
    CHECK(rocprofiler::sdk::null_agent_id.handle == 0);
    // By code object, then by address, which has two names.
    rocprofiler_thread_trace_decoder_pc_t low{}, high{};
    low.address = 9, low.code_object_id = 1, high.addr = 3, high.code_object_id = 2;
    CHECK(low < high && low != high && low.addr == 9 && sizeof low == 16);
    high.code_object_id = 1;
    CHECK(high < low && std::map<rocprofiler_thread_trace_decoder_pc_t, int>({{low, 1}, {high, 2}}).begin()->second == 2);
    // Names are compared as texts; places by what their positions are.
    const char name[] = "XCC", again[] = "XCC";
    CHECK((rocprofiler_counter_record_dimension_info_t{name, 8, 1} == rocprofiler_counter_record_dimension_info_t{again, 8, 1}));
    CHECK((rocprofiler_counter_record_dimension_info_t{name, 8, 1} < rocprofiler_counter_record_dimension_info_t{nullptr, 8, 2}));
    const rocprofiler_counter_dimension_info_t at[] = {{24, name, 1}, {24, again, 1}, {24, name, 2}};
    const rocprofiler_counter_dimension_info_t* lists[] = {&at[0], &at[1], &at[2], nullptr};
    const auto place = [&](int n) { return rocprofiler_counter_record_dimension_instance_info_t{40, 7, 3, 1, &lists[n]}; };
    CHECK(place(0) == place(1) && place(1) < place(2) && place(3) < place(0) && place(3) == place(3));
}

void texts()
{
    using namespace rocprofiler::sdk;
    CHECK(utility::as_hex(0x1fu) == "0x1f" && utility::as_hex(uint64_t{0xab}, 16) == "0x00000000000000ab");
    constexpr auto version = version::compute_version_triplet(10203);
    static_assert(version.major == 1 && version.minor == 2 && version.patch == 3, "100 of each");
    CHECK(version::compute_version_triplet<1000>(3002001).major == 3);
    static_assert(get_enum_label(ROCPROFILER_STATUS_ERROR_FINALIZED) == "ROCPROFILER_STATUS_ERROR_FINALIZED", "a name");
    CHECK(get_enum_label(static_cast<rocprofiler_status_t>(4000)) == "unsupported_rocprofiler_status_t");
    CHECK(get_enum_label(ROCPROFILER_CALLBACK_PHASE_LOAD) == "ROCPROFILER_CALLBACK_PHASE_ENTER");
    CHECK(get_enum_label(ROCPROFILER_HIP_RUNTIME_API_ID_hipMalloc) == "ROCPROFILER_HIP_RUNTIME_API_ID_hipMalloc");
    CHECK(mpl::is_empty(std::string()) && mpl::is_empty("") && !mpl::is_empty(std::vector<int>{1}) && !mpl::is_empty(7));
    static_assert(mpl::is_string_type<const char*&>::value && !mpl::is_string_type<int>::value, "texts");
    static_assert(mpl::can_stringify<int>::value && !mpl::can_stringify<rocprofiler_dim3_t>::value, "written");
    static_assert(mpl::is_iterable<std::vector<int>&>::value && mpl::has_key_type<std::map<int, int>>(0), "containers");
    std::set<int> numbers;
    mpl::emplace(numbers, 3);
    CHECK(numbers.count(3) == 1 && !mpl::reserve(numbers, 4));
}

void names()
{
    using namespace rocprofiler::sdk;
    const buffer_name_info records = get_buffer_tracing_names();
    const char* name = nullptr;
    CHECK(rocprofiler_query_buffer_tracing_kind_name(ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH, &name, nullptr) == success_v);
    CHECK(records.at(ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH) == name && std::strlen(name) > 3);
    CHECK(records.at(ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, ROCPROFILER_HIP_RUNTIME_API_ID_hipMalloc) == "hipMalloc");
    CHECK(records[ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API][ROCPROFILER_HIP_RUNTIME_API_ID_hipFree] == "hipFree");
    CHECK(records.size() == ROCPROFILER_BUFFER_TRACING_LAST && records.items().size() == records.size());
    for (const auto* kind : records.items())
        for (const auto& operation : kind->items())
            CHECK(*operation.second == records.at(kind->value, operation.first));
    const auto calls = get_callback_tracing_names<std::string>();
    CHECK(calls.at(ROCPROFILER_CALLBACK_TRACING_HSA_CORE_API, ROCPROFILER_HSA_CORE_API_ID_hsa_init) == "hsa_init");
    bool is_thrown = false;
    try {
        calls.at(static_cast<rocprofiler_callback_tracing_kind_t>(4000));
    } catch (const std::out_of_range&) {
        is_thrown = true;
    }
    CHECK(is_thrown);
}

void archives()
{
    rocprofiler_buffer_tracing_kernel_dispatch_record_t kernel{};
    kernel.size = sizeof kernel;
    kernel.kind = ROCPROFILER_BUFFER_TRACING_KERNEL_DISPATCH;
    kernel.correlation_id.internal = 5;
    kernel.correlation_id.external.value = 6;
    kernel.dispatch_info.agent_id.handle = 9;
    kernel.dispatch_info.grid_size = {1, 2, 3};
    cereal::Node tree;
    cereal::TreeOutputArchive out(tree);
    save(out, kernel);
    CHECK(tree.at("correlation_id").words() == "{internal=5,external=6}");
    CHECK(tree.at("dispatch_info").at("agent_id").words() == "{handle=9}");
    CHECK(tree.at("dispatch_info").at("grid_size").words() == "{x=1,y=2,z=3}");
    CHECK(tree.nodes.size() == 8 && tree.nodes[1].first == "kind" && tree.at("kind").text == "11");

    rocprofiler_buffer_tracing_memory_allocation_record_t memory{};
    memory.address.handle = 0xabc;
    cereal::Node allocation;
    cereal::TreeOutputArchive to_allocation(allocation);
    save(to_allocation, memory);
    CHECK(allocation.at("address").text == "0x0000000000000abc");

    // An agent there and back, with its lists and texts.
    rocprofiler_agent_mem_bank_t bank{};
    bank.width = 77;
    rocprofiler_agent_v0_t agent{}, again{};
    agent.id.handle = 4, agent.name = "gfx942", agent.gfx_target_version = 90402, agent.capability.ui32.DoorbellType = 2;
    agent.mem_banks = &bank, agent.mem_banks_count = 1;
    cereal::Node saved;
    cereal::TreeOutputArchive to_agent(saved);
    save(to_agent, agent);
    CHECK(saved.at("caches").words() == "[]" && saved.at("vendor_name").text.empty());
    cereal::TreeInputArchive from(saved);
    load(from, again);
    CHECK(again == agent && std::string(again.name) == "gfx942" && again.capability.ui32.DoorbellType == 2);
    CHECK(again.mem_banks_count == 1 && again.mem_banks[0].width == 77 && again.gfx_target_version == 90402);

    cereal::Node kinds;
    cereal::TreeOutputArchive to_kinds(kinds);
    save(to_kinds, rocprofiler::sdk::get_callback_tracing_names());
    CHECK(kinds.is_list && kinds.nodes.at(ROCPROFILER_CALLBACK_TRACING_CODE_OBJECT).second.at("operations").nodes.size() >= 3);
}

void ranges()
{
    using namespace rocprofiler::sdk::codeobj::segment;
    CodeobjTableTranslator table;
    table.insert({100, 50, 1});
    table.insert({200, 1, 2});
    table.insert({150, 50, 3});
    CHECK(table.find_codeobj_in_range(100).id == 1 && table.find_codeobj_in_range(149).id == 1);
    CHECK(table.find_codeobj_in_range(150).id == 3 && table.find_codeobj_in_range(200).id == 2);
    CHECK(!table.insert({120, 4, 5}).second && table.remove(101) && !table.remove(101));
    for (uint64_t outside : {uint64_t{0}, uint64_t{99}, uint64_t{120}, uint64_t{201}, UINT64_MAX}) {
        bool is_thrown = false;
        try {
            table.find_codeobj_in_range(outside);
        } catch (const std::exception&) {
            is_thrown = true;
        }
        CHECK(is_thrown);
    }
}

void code(const std::string& path)
{
    using namespace rocprofiler::sdk::codeobj::disassembly;
    std::ifstream file(path, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    CHECK(bytes.size() > 1000);
    // The same by its bytes, by a path with an escape and a part of a larger file.
    const std::string larger = path + " larger%.bin";
    std::ofstream(larger, std::ios::binary) << std::string(4096, 'x') << bytes << "rest";
    std::string uri = "FILE://" + path + "%20larger%25.bin#offset=4096&size=" + std::to_string(bytes.size());
    CHECK(CodeObjectBinary(uri).buffer == std::vector<char>(bytes.begin(), bytes.end()));
    CodeobjAddressTranslate code;
    code.addDecoder(bytes.data(), bytes.size(), 1, 0x10000, 0x8000);
    code.addDecoder(uri.c_str(), 2, 0x40000, 0x8000);
    std::remove(larger.c_str());
    const auto symbols = code.getSymbolMap(1);
    CHECK(symbols.size() >= 2 && code.getSymbolMap().size() == 2 * symbols.size() && code.getSymbolMap(3).empty());
    std::string all;
    for (const auto& symbol : symbols) {
        all += symbol.second.name + ' ';
        CHECK(symbol.second.vaddr == symbol.first && symbol.second.mem_size > 0 && symbol.second.faddr < bytes.size());
        CHECK(code.getSymbolName(0x10000 + symbol.first) == symbol.second.name);
        CHECK(code.getSymbolName(2, symbol.first) == symbol.second.name);
#if defined(ROCPROFILER_SDK_HAVE_COMGR)
        // Each instruction of it, without a gap, up to its end; the last that runs ends the program.
        uint64_t at = symbol.first;
        bool ends = false;
        while (at < symbol.first + symbol.second.mem_size) {
            const auto instruction = code.get(0x10000 + at);
            CHECK(instruction && instruction->size >= 4 && !instruction->inst.empty() && instruction->codeobj_id == 1);
            CHECK(code.get(2, at)->inst == instruction->inst && instruction->ld_addr == 0x10000 + at);
            ends = ends || instruction->inst == "s_endpgm";
            at += instruction->size;
        }
        CHECK(ends && at == symbol.first + symbol.second.mem_size);
#endif
    }
    CHECK(all.find("vadd") != std::string::npos && all.find("scale") != std::string::npos);
    CHECK(code.removeDecoder(1, 0x10000) && code.getSymbolMap(1).empty() && !code.removeDecoder(1, 0x10000));
    // What is no code object, or ends early, is said and not read.
    for (size_t length : {size_t{0}, size_t{10}, size_t{63}}) {
        bool is_thrown = false;
        try {
            code.addDecoder(bytes.data(), length, 9, 0, 1);
        } catch (const std::runtime_error&) {
            is_thrown = true;
        }
        CHECK(is_thrown);
    }
    for (size_t length = 64; length < bytes.size(); length += 97)
        code.addDecoder(bytes.data(), length, 9, 0, 1);
    for (const char* wrong : {"memory://1#offset=1&size=2", "no scheme", "file:///nowhere/at/all"}) {
        bool is_thrown = false;
        try {
            CodeObjectBinary read(wrong);
        } catch (const std::runtime_error&) {
            is_thrown = true;
        }
        CHECK(is_thrown);
    }
}

void containers()
{
    const rocprofiler_version_triplet_t old{1, 2, 1}, later{1, 10, 0};
    CHECK(old < later && later >= old && old == old && old != later && later > old && old <= old);
    int numbers[4] = {1, 2, 3, 4};
    auto all = rocprofiler::sdk::container::make_c_array(numbers, 4);
    all.pop_front();
    int sum = 0;
    for (int number : all) sum += number;
    CHECK(sum == 9 && all.size() == 3 && all.slice(1, 3)[1] == 4 && static_cast<int*>(all) == numbers + 1);
    bool is_thrown = false;
    try {
        all.at(3);
    } catch (const std::out_of_range&) {
        is_thrown = true;
    }
    CHECK(is_thrown);
    all.pop_back();
    CHECK(all.size() == 2);

    namespace join = rocprofiler::sdk::join;
    namespace parse = rocprofiler::sdk::parse;
    const std::map<std::string, int> map{{"a", 1}};
    const std::vector<int> none;
    CHECK(join::join(", ", 1, "two", true, none, std::vector<int>{3, 4}, map) == "1, two, true, [3, 4], [{a, 1}]");
    CHECK(join::join<join::QuoteStrings>('/', "a", std::string{"b"}) == "\"a\"/\"b\"");
    CHECK(join::join({", ", "<", ">"}, 1, 2) == "<1, 2>" && join::join(",") == "" && join::quoted(7) == "\"7\"");
    const join::array_config elements{";", "(", ")"};
    CHECK(join::join(join::config{elements}, none, std::vector<int>{1, 2}) == "(1;2)");
    CHECK(parse::tokenize("a,, b;c") == std::vector<std::string>{"a", "b", "c"});
    CHECK(parse::tokenize("::", ":").empty() && parse::tokenize("x y", ":") == std::vector<std::string>{"x y"});
    CHECK(parse::strip("\t a b \n") == "a b" && parse::strip("aba", "a") == "b" && parse::strip("  ").empty());
}
} // namespace

int main(int argc, char** argv)
{
    try {
        comparisons();
        containers();
        texts();
        names();
        archives();
        ranges();
        if (argc > 1) code(argv[1]);
    } catch (const std::exception& error) {
        std::cout << error.what() << '\n';
        return 1;
    }
    std::cout << "well\n";
    return 0;
}
