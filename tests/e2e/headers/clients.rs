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
const CLIENTS: [Client; 17] = [
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
         for (const auto& kind : names) {\n\
             assert(kind.items().size() == kind.operations.size()); use(kind.value, std::string{kind.name});\n\
             for (auto [number, name] : kind.items()) use(number, std::string{*name});\n\
         }\n\
         rocprofiler_buffer_tracing_scratch_memory_record_t scratch{}; use(scratch.flags, scratch.agent_id.handle, scratch.queue_id.handle,\n\
             names[scratch.kind][scratch.operation], names.at(scratch.kind, scratch.operation));\n\
         rocprofiler_at_internal_thread_create([](rocprofiler_runtime_library_t lib, void*) { use(std::to_string(lib)); }, nullptr,\n\
             ROCPROFILER_LIBRARY | ROCPROFILER_HSA_LIBRARY | ROCPROFILER_HIP_LIBRARY | ROCPROFILER_MARKER_LIBRARY, nullptr);\n\
         use(rocprofiler_force_configure(&rocprofiler_configure), ROCPROFILER_STATUS_ERROR_BUFFER_BUSY, ROCPROFILER_STATUS_ERROR_FINALIZED);\n\
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
         rocprofiler_callback_tracing_record_t record{}; int valid = 0;\n\
         auto argument = [](rocprofiler_callback_tracing_kind_t, rocprofiler_tracing_operation_t, uint32_t, const void* const, int32_t,\n\
             const char*, const char*, const char*, int32_t, void*) -> int { return 0; };\n\
         rocprofiler_iterate_callback_tracing_kind_operation_args(record, argument, 2, nullptr);\n\
         std::array<uint32_t, 3> version{}; rocprofiler_get_version(&version.at(0), &version.at(1), &version.at(2));\n\
         use(rocprofiler_context_is_valid(context, &valid), version);\n\
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
         const rocprofiler_counter_record_dimension_info_t *first = *info.dimensions, *last = *info.dimensions + info.dimensions_count; use(first, last);\n\
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
         std::pair<rocprofiler_counter_record_dimension_info_t, size_t> place; use(place.first.instance_size, place.first.name);\n\
         rocprofiler_query_counter_instance_count({}, {}, &position);\n\
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
         auto names = new rocprofiler::sdk::buffer_name_info{};\n\
         rocprofiler_buffer_tracing_correlation_id_retirement_record_t retired{};\n\
         use(names->at(retired.kind), retired.internal_correlation_id, retired.timestamp);\n\
         for (auto [number, name] : (*names)[ROCPROFILER_BUFFER_TRACING_HIP_RUNTIME_API].items())\n\
             use(rocprofiler_tracing_operation_t(number), std::string_view{*name});\n\
         auto asked = [](rocprofiler_thread_id_t, rocprofiler_context_id_t, rocprofiler_external_correlation_id_request_kind_t,\n\
             rocprofiler_tracing_operation_t, uint64_t, rocprofiler_user_data_t* id, void*) { id->ptr = nullptr; return 0; };\n\
         const std::array<rocprofiler_external_correlation_id_request_kind_t, 2> kinds{\n\
             ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_KERNEL_DISPATCH, ROCPROFILER_EXTERNAL_CORRELATION_REQUEST_MEMORY_COPY};\n\
         rocprofiler_configure_external_correlation_id_request_service(context, kinds.data(), kinds.size(), asked, nullptr);\n\
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
        &[
            "ompt.h",
            "registration.h",
            "rocprofiler.h",
            "cxx/name_info.hpp",
        ],
        "rocprofiler_callback_tracing_ompt_data_t data{}; auto& of = data.args;\n\
         use(of.parallel_begin.parallel_data->value, of.parallel_end.parallel_data->value, of.thread_begin.thread_data->value,\n\
             of.thread_end.thread_data->value, of.implicit_task.task_data->value, of.target_emi.target_data->value,\n\
             of.target_data_op_emi.host_op_id->value, of.target_submit_emi.host_op_id->value);\n\
         ompt_start_tool_result_t* started = rocprofiler_ompt_start_tool(0, nullptr); use(started);\n\
         static auto names = rocprofiler::sdk::get_callback_tracing_names();\n\
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
        "pc_sampling/pcs",
        &["fwd.h", "rocprofiler.h"],
        "rocprofiler_pc_sampling_record_stochastic_v0_t one{}; auto snapshot = one.snapshot;\n\
         use(one.wave_issued, one.inst_type, one.workgroup_id.x, one.wave_in_group, one.hw_id.chiplet, snapshot.reason_not_issued,\n\
             snapshot.dual_issue_valu, snapshot.arb_state_issue_valu, snapshot.arb_state_issue_matrix, snapshot.arb_state_issue_lds,\n\
             snapshot.arb_state_issue_lds_direct, snapshot.arb_state_issue_scalar, snapshot.arb_state_issue_vmem_tex,\n\
             snapshot.arb_state_issue_flat, snapshot.arb_state_issue_exp, snapshot.arb_state_issue_misc, snapshot.arb_state_stall_valu,\n\
             snapshot.arb_state_stall_matrix, snapshot.arb_state_stall_lds, snapshot.arb_state_stall_lds_direct,\n\
             snapshot.arb_state_stall_scalar, snapshot.arb_state_stall_vmem_tex, snapshot.arb_state_stall_flat,\n\
             snapshot.arb_state_stall_exp, snapshot.arb_state_stall_misc);\n\
         use(rocprofiler_get_pc_sampling_instruction_type_name(static_cast<rocprofiler_pc_sampling_instruction_type_t>(one.inst_type)),\n\
             rocprofiler_get_pc_sampling_instruction_not_issued_reason_name(\n\
                 static_cast<rocprofiler_pc_sampling_instruction_not_issued_reason_t>(snapshot.reason_not_issued)));\n\
         rocprofiler_pc_sampling_configuration_t configuration{};\n\
         use(configuration.flags == ROCPROFILER_PC_SAMPLING_CONFIGURATION_FLAGS_INTERVAL_POW2, configuration.min_interval,\n\
             configuration.max_interval, ROCPROFILER_PC_SAMPLING_RECORD_INVALID_SAMPLE, rocprofiler_pc_sampling_record_invalid_t{},\n\
             rocprofiler_record_header_compute_hash(ROCPROFILER_BUFFER_CATEGORY_PC_SAMPLING, 1), ROCPROFILER_STATUS_ERROR_NOT_AVAILABLE);\n\
         const void* agents[1]{}; use(reinterpret_cast<const rocprofiler_agent_t**>(agents)[0]);",
    ),
    (
        "pc_sampling/client",
        &["fwd.h", "rocprofiler.h", "registration.h"],
        "rocprofiler_buffer_policy_t policy = ROCPROFILER_BUFFER_POLICY_LOSSLESS; int state = -1;\n\
         rocprofiler_context_id_t context{0}; auto buffer = rocprofiler_buffer_id_t{}; auto thread = rocprofiler_callback_thread_t{};\n\
         rocprofiler_create_buffer(context, 8192, 2048, policy, nullptr, nullptr, &buffer); rocprofiler_create_callback_thread(&thread);\n\
         use(rocprofiler_assign_callback_thread(buffer, thread), rocprofiler_context_is_active(context, &state), rocprofiler_destroy_buffer(buffer));",
    ),
    (
        "main",
        &["../rocprofiler-sdk-roctx/roctx.h"],
        "auto range = roctxRangeStart(\"main\"); roctxMark(\"mark\"); roctxRangePush(\"run\"); roctxRangePop(); roctxRangeStop(range);\n\
         auto tid = roctx_thread_id_t{}; roctxGetThreadId(&tid); roctxProfilerPause(tid); roctxProfilerResume(tid);",
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
         std::map<rocprofiler_thread_trace_decoder_pc_t, uint64_t> table; std::ofstream file; std::pair<uint64_t, uint64_t> pair;\n\
         rocprofiler_thread_trace_decoder_inst_t one{}; table[one.pc] += one.duration; use(one.pc.address, one.pc.code_object_id, file, pair);\n\
         rocprofiler_thread_trace_decoder_occupancy_t event{}; use(event.start, event.time);\n\
         auto shader = [](rocprofiler_agent_id_t, int64_t, void*, size_t, rocprofiler_user_data_t) {};\n\
         rocprofiler_configure_device_thread_trace_service({}, {}, parameters.data(), parameters.size(), shader, {});\n\
         rocprofiler_thread_trace_decoder_create(&decoder, \"/opt/rocm/lib\"); rocprofiler_thread_trace_decoder_destroy(decoder);\n\
         rocprofiler_thread_trace_decoder_codeobj_load(decoder, 1, 2, 3, nullptr, 4);\n\
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
