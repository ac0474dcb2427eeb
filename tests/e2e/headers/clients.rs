//! The include lines of AMD's own sample clients, and what these clients use without including it
//! by name. Each is compiled against our headers. The tests in `samples` check what such clients
//! do.

use super::{LANGUAGES, compile, include, runtimes, stand_ins};
use midair_tests::Result;
use midair_tests::lab::Lab;

/// A client: its place among AMD's samples, midair's headers that it includes (the headers of the
/// standard library are not listed), and what it uses of them.
type Client = (&'static str, &'static [&'static str], &'static str);

/// Source: the include lines of `samples/*/` of rocprofiler-sdk 1.2.1.
const CLIENTS: [Client; 14] = [
    (
        "api_buffered_tracing",
        &[
            "buffer.h",
            "buffer_tracing.h",
            "callback_tracing.h",
            "external_correlation.h",
            "fwd.h",
            "internal_threading.h",
            "registration.h",
            "rocprofiler.h",
            "cxx/name_info.hpp",
        ],
        "auto names = rocprofiler::sdk::get_buffer_tracing_names();\n\
         for (const auto& kind : names) assert(kind.items().size() == kind.operations.size());\n\
         rocprofiler_user_data_t word = {.value = 1};\n\
         use(word.value, ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API, names.size());",
    ),
    (
        "api_callback_tracing",
        &[
            "context.h",
            "fwd.h",
            "marker/api_id.h",
            "registration.h",
            "rocprofiler.h",
            "cxx/name_info.hpp",
        ],
        "rocprofiler_context_id_t context{0};\n\
         use(context, ROCPROFILER_MARKER_CONTROL_API_ID_roctxProfilerPause, rocprofiler::sdk::callback_name_info{});",
    ),
    (
        "code_object_isa_decode",
        &[
            "buffer.h",
            "callback_tracing.h",
            "fwd.h",
            "registration.h",
            "rocprofiler.h",
            "cxx/codeobj/code_printing.hpp",
        ],
        "rocprofiler::sdk::codeobj::disassembly::CodeobjAddressTranslate table;\n\
         std::unordered_map<std::string, std::pair<uint64_t, size_t>> kernels;\n\
         std::unordered_set<std::string> references;\n\
         for (auto& [address, symbol] : table.getSymbolMap(1)) kernels.insert({symbol.name, {address, symbol.mem_size}});\n\
         std::unique_ptr<rocprofiler::sdk::codeobj::disassembly::Instruction> one = table.get(1, 0);\n\
         std::ofstream file; file << std::hex << kernels.size(); use(one, references);",
    ),
    (
        "code_object_tracing",
        &[
            "buffer.h",
            "callback_tracing.h",
            "fwd.h",
            "registration.h",
            "rocprofiler.h",
        ],
        "rocprofiler_callback_tracing_code_object_load_data_t load{};\n\
         char text[8]; ::memset(text, 0, sizeof text); use(load.rocp_agent.handle, load.memory_base, text);",
    ),
    (
        "counter_collection/callback_client",
        &["registration.h", "rocprofiler.h"],
        "rocprofiler_counter_config_id_t config = {.handle = 0};\n\
         rocprofiler_counter_info_v0_t info; info.name = nullptr; use(config, info, rocprofiler_get_status_string(ROCPROFILER_STATUS_ERROR));",
    ),
    (
        "counter_collection/buffered_client",
        &["registration.h", "rocprofiler.h"],
        "rocprofiler_counter_info_v1_t info{}; assert(info.dimensions_count == 0);\n\
         use(info, ROCPROFILER_COUNTER_RECORD_PROFILE_COUNTING_DISPATCH_HEADER, rocprofiler_counter_record_t{});",
    ),
    (
        "counter_collection/device_counting_async_client",
        &["registration.h", "rocprofiler.h"],
        "rocprofiler_device_counting_agent_cb_t set = nullptr;\n\
         rocprofiler_sample_device_counting_service({0}, {.value = 1}, ROCPROFILER_COUNTER_FLAG_NONE, nullptr, nullptr); use(set);",
    ),
    (
        "counter_collection/device_counting_sync_client",
        &["registration.h", "rocprofiler.h"],
        "use(ROCPROFILER_COUNTER_FLAG_ASYNC, rocprofiler_agent_v0_t{}, sizeof(rocprofiler_agent_t));",
    ),
    (
        "counter_collection/print_functional_counters_client",
        &["registration.h", "rocprofiler.h"],
        "rocprofiler_counter_instance_id_t id = 0; size_t position = 0;\n\
         rocprofiler_query_record_dimension_position(id, 0, &position); use(position);",
    ),
    (
        "external_correlation_id_request",
        &[
            "buffer.h",
            "buffer_tracing.h",
            "callback_tracing.h",
            "context.h",
            "external_correlation.h",
            "fwd.h",
            "hip/runtime_api_id.h",
            "internal_threading.h",
            "registration.h",
            "rocprofiler.h",
            "cxx/name_info.hpp",
        ],
        "rocprofiler_context_id_t context = {.handle = 0};\n\
         auto key = std::make_pair(context.handle, ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_NONE);\n\
         use(key, rocprofiler::sdk::buffer_name_info{}, ROCPROFILER_HIP_RUNTIME_API_ID_hipLaunchKernel);",
    ),
    (
        "intercept_table",
        &["registration.h", "rocprofiler.h"],
        "HsaApiTable* table = nullptr; MarkerTables* markers = nullptr; HipDispatchTable* hip = nullptr;\n\
         using create = decltype(table->core_->hsa_queue_create_fn); using allocate = decltype(hip->hipMalloc_fn);\n\
         static_assert(std::is_pointer<create>::value && std::is_pointer<allocate>::value, \"functions\"); use(markers);",
    ),
    (
        "openmp_target",
        &["registration.h", "rocprofiler.h", "cxx/name_info.hpp"],
        "static auto names = rocprofiler::sdk::get_callback_tracing_names();\n\
         use(names.at(ROCPROFILER_CALLBACK_TRACING_OMPT), ROCPROFILER_OMPT_ID_target_emi, ROCPROFILER_HSA_CORE_API_ID_hsa_queue_destroy);",
    ),
    (
        "pc_sampling",
        &[
            "buffer.h",
            "fwd.h",
            "pc_sampling.h",
            "registration.h",
            "rocprofiler.h",
        ],
        "rocprofiler_pc_sampling_record_host_trap_v0_t sample{}; assert(sample.exec_mask == 0);\n\
         use(sample.hw_id, ROCPROFILER_PC_SAMPLING_METHOD_STOCHASTIC, rocprofiler_pc_sampling_configuration_t{});",
    ),
    (
        "thread_trace/agent",
        &[
            "cxx/codeobj/code_printing.hpp",
            "cxx/operators.hpp",
            "buffer.h",
            "callback_tracing.h",
            "experimental/thread_trace.h",
            "fwd.h",
            "registration.h",
            "rocprofiler.h",
        ],
        "std::vector<rocprofiler_thread_trace_parameter_t> parameters;\n\
         parameters.push_back({ROCPROFILER_THREAD_TRACE_PARAMETER_TARGET_CU, {1}});\n\
         rocprofiler_thread_trace_decoder_id_t decoder{}; assert(decoder.handle == 0);\n\
         std::map<rocprofiler_agent_id_t, rocprofiler_thread_trace_decoder_pc_t> table;\n\
         rocprofiler_thread_trace_decoder_wave_t wave{}; use(parameters, table, wave.instructions_size,\n\
             ROCPROFILER_THREAD_TRACE_DECODER_RECORD_OCCUPANCY, rocprofiler_trace_decode(decoder, nullptr, nullptr, 0, nullptr));",
    ),
];

/// Our flags for compiling those clients, which are C++17 with designated initializers.
const FLAGS: [&str; 3] = ["-Wno-pedantic", "-Wno-unused-value", "-Wno-shadow"];

#[test]
fn the_include_lines_of_amds_sample_clients() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    for (client, headers, uses) in CLIENTS {
        let mut text: String = headers
            .iter()
            .map(|header| format!("#include <rocprofiler-sdk/{header}>\n"))
            .collect();
        text.push_str("template <typename... Values>\nvoid use(const Values&...)\n{\n}\n");
        if client == "intercept_table" {
            text.push_str("using MarkerTables = roctxCoreApiTable_t;\n");
        }
        text.push_str(&format!("int main()\n{{\n{uses}\nreturn 0;\n}}\n"));
        let mut flags = vec![
            format!("-I{}", include()?.display()),
            format!("-I{}", stand_ins().display()),
        ];
        flags.extend(FLAGS.map(str::to_owned));
        flags.extend(runtimes(&lab)?);
        flags.push("-fsyntax-only".to_owned());
        compile(dir.path(), LANGUAGES[1], &text, &flags)
            .map_err(|error| format!("{client}: {error}"))?;
    }
    Ok(())
}
