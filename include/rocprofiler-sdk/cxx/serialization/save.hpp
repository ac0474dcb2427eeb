/* rocprofiler-sdk for C++: saving records, agents and names by cereal. The names of fields are AMD's, so that readers of its
 * files find them. Arguments of calls are saved for the _EXT kinds only.
 */
#ifndef ROCPROFILER_SDK_CXX_SERIALIZATION_SAVE_HPP_
#define ROCPROFILER_SDK_CXX_SERIALIZATION_SAVE_HPP_

#include <rocprofiler-sdk/cxx/name_info.hpp>
#include <rocprofiler-sdk/cxx/utility.hpp>
#include <rocprofiler-sdk/rocprofiler.h>
#include <cereal/cereal.hpp>
#include <cereal/types/common.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

/* Where cereal is in another namespace, both are defined before this header is included. */
#if !defined(ROCPROFILER_SDK_CEREAL_NAMESPACE_BEGIN)
#    define ROCPROFILER_SDK_CEREAL_NAMESPACE_BEGIN                                                                     \
        namespace cereal                                                                                               \
        {
#endif
#if !defined(ROCPROFILER_SDK_CEREAL_NAMESPACE_END)
#    define ROCPROFILER_SDK_CEREAL_NAMESPACE_END }
#endif

namespace rocprofiler
{
namespace sdk
{
namespace serialization
{
/* An argument of a call, in words. */
struct buffer_tracing_args
{
    std::string type = {};
    std::string name = {};
    std::string value = {};
};

/* The arguments of a record of an _EXT kind; none of another. */
template <typename Record>
std::vector<buffer_tracing_args> get_buffer_tracing_args(Record& of)
{
    std::vector<buffer_tracing_args> all;
    rocprofiler_record_header_t header = {};
    header.category = ROCPROFILER_BUFFER_CATEGORY_TRACING;
    header.kind = of.kind;
    header.payload = const_cast<void*>(static_cast<const void*>(&of));
    rocprofiler_iterate_buffer_tracing_record_args(
        header,
        [](rocprofiler_buffer_tracing_kind_t,
           rocprofiler_tracing_operation_t,
           uint32_t number,
           const void* const,
           int32_t,
           const char* type,
           const char* name,
           const char* value,
           void* into) {
            auto& list = *static_cast<std::vector<buffer_tracing_args>*>(into);
            if (list.size() <= number) list.resize(number + size_t{1});
            list[number] = buffer_tracing_args{type, name, value};
            return 0;
        },
        &all);
    return all;
}
} // namespace serialization
} // namespace sdk
} // namespace rocprofiler

/* A type and its fields; a field by its name; a field by another name; a field of bits; a text that may be NULL. */
#define ROCPROFILER_SDK_SAVED(type, ...)                                                                               \
    template <typename Archive>                                                                                        \
    void save(Archive& ar, const type& data)                                                                           \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define ROCPROFILER_SDK_FIELD(name) ar(make_nvp(#name, data.name));
#define ROCPROFILER_SDK_FIELD_AS(text, value) ar(make_nvp(text, value));
#define ROCPROFILER_SDK_BITS(text, name)                                                                               \
    {                                                                                                                  \
        const auto bits = data.name;                                                                                   \
        ar(make_nvp(text, bits));                                                                                      \
    }
#define ROCPROFILER_SDK_TEXT(name) ar(make_nvp(#name, std::string(data.name != nullptr ? data.name : "")));
#define ROCPROFILER_SDK_EACH(text, name, count)                                                                        \
    ar(make_nvp(text, std::vector<std::decay_t<decltype(data.name[0])>>(data.name, data.name + data.count)));

ROCPROFILER_SDK_CEREAL_NAMESPACE_BEGIN

ROCPROFILER_SDK_SAVED(rocprofiler_context_id_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(rocprofiler_agent_id_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(rocprofiler_queue_id_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(rocprofiler_stream_id_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(rocprofiler_counter_id_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(rocprofiler_address_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(hsa_agent_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_SAVED(rocprofiler_correlation_id_t,
    ROCPROFILER_SDK_FIELD(internal)
    ROCPROFILER_SDK_FIELD_AS("external", data.external.value)
    ROCPROFILER_SDK_FIELD(ancestor))

ROCPROFILER_SDK_SAVED(rocprofiler_async_correlation_id_t,
    ROCPROFILER_SDK_FIELD(internal)
    ROCPROFILER_SDK_FIELD_AS("external", data.external.value))

ROCPROFILER_SDK_SAVED(rocprofiler_dim3_t,
    ROCPROFILER_SDK_FIELD(x)
    ROCPROFILER_SDK_FIELD(y)
    ROCPROFILER_SDK_FIELD(z))

ROCPROFILER_SDK_SAVED(rocprofiler_uuid_t,
    ROCPROFILER_SDK_FIELD_AS("value", std::vector<unsigned>(std::begin(data.bytes), std::end(data.bytes))))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_code_object_load_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(code_object_id)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_TEXT(uri)
    ROCPROFILER_SDK_FIELD(load_base)
    ROCPROFILER_SDK_FIELD(load_size)
    ROCPROFILER_SDK_FIELD(load_delta)
    ROCPROFILER_SDK_FIELD(storage_type)
    if (data.storage_type == ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_FILE) {
    ROCPROFILER_SDK_FIELD(storage_file)
    } else if (data.storage_type == ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_MEMORY) {
    ROCPROFILER_SDK_FIELD(memory_base)
    ROCPROFILER_SDK_FIELD(memory_size)
    })

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kernel_id)
    ROCPROFILER_SDK_FIELD(code_object_id)
    ROCPROFILER_SDK_TEXT(kernel_name)
    ROCPROFILER_SDK_FIELD(kernel_object)
    ROCPROFILER_SDK_FIELD(kernarg_segment_size)
    ROCPROFILER_SDK_FIELD(kernarg_segment_alignment)
    ROCPROFILER_SDK_FIELD(group_segment_size)
    ROCPROFILER_SDK_FIELD(private_segment_size)
    ROCPROFILER_SDK_FIELD(sgpr_count)
    ROCPROFILER_SDK_FIELD(arch_vgpr_count)
    ROCPROFILER_SDK_FIELD(accum_vgpr_count)
    ROCPROFILER_SDK_FIELD(kernel_code_entry_byte_offset)
    ROCPROFILER_SDK_FIELD(kernel_address))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_code_object_host_kernel_symbol_register_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(host_function_id)
    ROCPROFILER_SDK_FIELD(kernel_id)
    ROCPROFILER_SDK_FIELD(code_object_id)
    ROCPROFILER_SDK_FIELD(host_function)
    ROCPROFILER_SDK_FIELD(modules)
    ROCPROFILER_SDK_TEXT(device_function)
    ROCPROFILER_SDK_FIELD(thread_limit)
    ROCPROFILER_SDK_FIELD(thread_ids)
    ROCPROFILER_SDK_FIELD(block_ids)
    ROCPROFILER_SDK_FIELD(block_dims)
    ROCPROFILER_SDK_FIELD(grid_dims)
    ROCPROFILER_SDK_FIELD(workgroup_size))

ROCPROFILER_SDK_SAVED(rocprofiler_hsa_api_retval_t,
    ROCPROFILER_SDK_FIELD(uint64_t_retval))

ROCPROFILER_SDK_SAVED(rocprofiler_hip_api_retval_t,
    ROCPROFILER_SDK_FIELD(uint64_t_retval))

ROCPROFILER_SDK_SAVED(rocprofiler_marker_api_retval_t,
    ROCPROFILER_SDK_FIELD(int64_t_retval))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_hsa_api_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(retval))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_hip_api_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(retval))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_marker_api_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(retval))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_scratch_memory_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD(queue_id)
    ROCPROFILER_SDK_FIELD(flags)
    ROCPROFILER_SDK_FIELD(args_kind))

ROCPROFILER_SDK_SAVED(rocprofiler_kernel_dispatch_info_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD(queue_id)
    ROCPROFILER_SDK_FIELD(kernel_id)
    ROCPROFILER_SDK_FIELD(dispatch_id)
    ROCPROFILER_SDK_FIELD(private_segment_size)
    ROCPROFILER_SDK_FIELD(group_segment_size)
    ROCPROFILER_SDK_FIELD(workgroup_size)
    ROCPROFILER_SDK_FIELD(grid_size))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_kernel_dispatch_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(dispatch_info))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_memory_copy_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(dst_agent_id)
    ROCPROFILER_SDK_FIELD(src_agent_id)
    ROCPROFILER_SDK_FIELD(bytes))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_memory_allocation_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD_AS("address", ::rocprofiler::sdk::utility::as_hex(data.address.handle, 16))
    ROCPROFILER_SDK_FIELD(allocation_size))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_runtime_initialization_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(version)
    ROCPROFILER_SDK_FIELD(instance))

ROCPROFILER_SDK_SAVED(rocprofiler_callback_tracing_record_t,
    ROCPROFILER_SDK_FIELD(context_id)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(phase))

ROCPROFILER_SDK_SAVED(rocprofiler_dispatch_counting_service_data_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(dispatch_info))

ROCPROFILER_SDK_SAVED(rocprofiler_dispatch_counting_service_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(num_records)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(dispatch_info))

ROCPROFILER_SDK_SAVED(rocprofiler_counter_record_t,
    ROCPROFILER_SDK_FIELD(id)
    ROCPROFILER_SDK_FIELD(counter_value)
    ROCPROFILER_SDK_FIELD(dispatch_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_hsa_api_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_hip_api_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_marker_api_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_rccl_api_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_rocdecode_api_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_rocjpeg_api_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id))

ROCPROFILER_SDK_SAVED(::rocprofiler::sdk::serialization::buffer_tracing_args,
    ROCPROFILER_SDK_FIELD(type)
    ROCPROFILER_SDK_FIELD(name)
    ROCPROFILER_SDK_FIELD(value))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_hip_api_ext_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD_AS("args", ::rocprofiler::sdk::serialization::get_buffer_tracing_args(data))
    ROCPROFILER_SDK_FIELD(retval))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_ompt_target_t,
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD_AS("device", data.device_num)
    ROCPROFILER_SDK_FIELD(task_id)
    ROCPROFILER_SDK_FIELD(target_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_ompt_target_data_op_t,
    ROCPROFILER_SDK_FIELD(host_op_id)
    ROCPROFILER_SDK_FIELD(optype)
    ROCPROFILER_SDK_FIELD(src_device_num)
    ROCPROFILER_SDK_FIELD(dst_device_num)
    ROCPROFILER_SDK_FIELD(bytes))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_ompt_target_kernel_t,
    ROCPROFILER_SDK_FIELD(host_op_id)
    ROCPROFILER_SDK_FIELD(device_num)
    ROCPROFILER_SDK_FIELD(requested_num_teams))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_ompt_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(thread_id)
    if (data.operation == ROCPROFILER_OMPT_ID_target_emi) {
    ROCPROFILER_SDK_FIELD(target)
    } else if (data.operation == ROCPROFILER_OMPT_ID_target_data_op_emi) {
    ROCPROFILER_SDK_FIELD(target_data_op)
    } else if (data.operation == ROCPROFILER_OMPT_ID_target_submit_emi) {
    ROCPROFILER_SDK_FIELD(target_kernel)
    })

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kernel_dispatch_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(dispatch_info))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_memory_copy_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(dst_agent_id)
    ROCPROFILER_SDK_FIELD(src_agent_id)
    ROCPROFILER_SDK_FIELD(bytes))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_memory_allocation_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD_AS("address", ::rocprofiler::sdk::utility::as_hex(data.address.handle, 16))
    ROCPROFILER_SDK_FIELD(allocation_size))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_scratch_memory_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD(queue_id)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(flags))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_correlation_id_retirement_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(internal_correlation_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_runtime_initialization_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(correlation_id)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(thread_id)
    ROCPROFILER_SDK_FIELD(version)
    ROCPROFILER_SDK_FIELD(instance))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_event_page_migrate_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(start_address)
    ROCPROFILER_SDK_FIELD(end_address)
    ROCPROFILER_SDK_FIELD(src_agent)
    ROCPROFILER_SDK_FIELD(dst_agent)
    ROCPROFILER_SDK_FIELD(prefetch_agent)
    ROCPROFILER_SDK_FIELD(preferred_agent)
    ROCPROFILER_SDK_FIELD(error_code))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_event_page_fault_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD(address))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_event_queue_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(agent_id))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_event_unmap_from_gpu_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD(start_address)
    ROCPROFILER_SDK_FIELD(end_address))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_event_dropped_events_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(count))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_page_migrate_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(start_address)
    ROCPROFILER_SDK_FIELD(end_address)
    ROCPROFILER_SDK_FIELD(src_agent)
    ROCPROFILER_SDK_FIELD(dst_agent)
    ROCPROFILER_SDK_FIELD(prefetch_agent)
    ROCPROFILER_SDK_FIELD(preferred_agent)
    ROCPROFILER_SDK_FIELD(error_code))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_page_fault_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(agent_id)
    ROCPROFILER_SDK_FIELD(address))

ROCPROFILER_SDK_SAVED(rocprofiler_buffer_tracing_kfd_queue_record_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(kind)
    ROCPROFILER_SDK_FIELD(operation)
    ROCPROFILER_SDK_FIELD(start_timestamp)
    ROCPROFILER_SDK_FIELD(end_timestamp)
    ROCPROFILER_SDK_FIELD(pid)
    ROCPROFILER_SDK_FIELD(agent_id))

ROCPROFILER_SDK_SAVED(HsaCacheType,
    ROCPROFILER_SDK_BITS("Data", ui32.Data)
    ROCPROFILER_SDK_BITS("Instruction", ui32.Instruction)
    ROCPROFILER_SDK_BITS("CPU", ui32.CPU)
    ROCPROFILER_SDK_BITS("HSACU", ui32.HSACU))

ROCPROFILER_SDK_SAVED(HSA_LINKPROPERTY,
    ROCPROFILER_SDK_BITS("Override", ui32.Override)
    ROCPROFILER_SDK_BITS("NonCoherent", ui32.NonCoherent)
    ROCPROFILER_SDK_BITS("NoAtomics32bit", ui32.NoAtomics32bit)
    ROCPROFILER_SDK_BITS("NoAtomics64bit", ui32.NoAtomics64bit)
    ROCPROFILER_SDK_BITS("NoPeerToPeerDMA", ui32.NoPeerToPeerDMA))

ROCPROFILER_SDK_SAVED(HSA_CAPABILITY,
    ROCPROFILER_SDK_BITS("HotPluggable", ui32.HotPluggable)
    ROCPROFILER_SDK_BITS("HSAMMUPresent", ui32.HSAMMUPresent)
    ROCPROFILER_SDK_BITS("SharedWithGraphics", ui32.SharedWithGraphics)
    ROCPROFILER_SDK_BITS("QueueSizePowerOfTwo", ui32.QueueSizePowerOfTwo)
    ROCPROFILER_SDK_BITS("QueueSize32bit", ui32.QueueSize32bit)
    ROCPROFILER_SDK_BITS("QueueIdleEvent", ui32.QueueIdleEvent)
    ROCPROFILER_SDK_BITS("VALimit", ui32.VALimit)
    ROCPROFILER_SDK_BITS("WatchPointsSupported", ui32.WatchPointsSupported)
    ROCPROFILER_SDK_BITS("WatchPointsTotalBits", ui32.WatchPointsTotalBits)
    ROCPROFILER_SDK_BITS("DoorbellType", ui32.DoorbellType)
    ROCPROFILER_SDK_BITS("AQLQueueDoubleMap", ui32.AQLQueueDoubleMap)
    ROCPROFILER_SDK_BITS("DebugTrapSupported", ui32.DebugTrapSupported)
    ROCPROFILER_SDK_BITS("WaveLaunchTrapOverrideSupported", ui32.WaveLaunchTrapOverrideSupported)
    ROCPROFILER_SDK_BITS("WaveLaunchModeSupported", ui32.WaveLaunchModeSupported)
    ROCPROFILER_SDK_BITS("PreciseMemoryOperationsSupported", ui32.PreciseMemoryOperationsSupported)
    ROCPROFILER_SDK_BITS("DEPRECATED_SRAM_EDCSupport", ui32.DEPRECATED_SRAM_EDCSupport)
    ROCPROFILER_SDK_BITS("Mem_EDCSupport", ui32.Mem_EDCSupport)
    ROCPROFILER_SDK_BITS("RASEventNotify", ui32.RASEventNotify)
    ROCPROFILER_SDK_BITS("ASICRevision", ui32.ASICRevision)
    ROCPROFILER_SDK_BITS("SRAM_EDCSupport", ui32.SRAM_EDCSupport)
    ROCPROFILER_SDK_BITS("SVMAPISupported", ui32.SVMAPISupported)
    ROCPROFILER_SDK_BITS("CoherentHostAccess", ui32.CoherentHostAccess)
    ROCPROFILER_SDK_BITS("DebugSupportedFirmware", ui32.DebugSupportedFirmware))

ROCPROFILER_SDK_SAVED(HSA_MEMORYPROPERTY,
    ROCPROFILER_SDK_BITS("HotPluggable", ui32.HotPluggable)
    ROCPROFILER_SDK_BITS("NonVolatile", ui32.NonVolatile))

ROCPROFILER_SDK_SAVED(HSA_ENGINE_ID,
    ROCPROFILER_SDK_BITS("uCode", ui32.uCode)
    ROCPROFILER_SDK_BITS("Major", ui32.Major)
    ROCPROFILER_SDK_BITS("Minor", ui32.Minor)
    ROCPROFILER_SDK_BITS("Stepping", ui32.Stepping))

ROCPROFILER_SDK_SAVED(HSA_ENGINE_VERSION,
    ROCPROFILER_SDK_BITS("uCodeSDMA", uCodeSDMA)
    ROCPROFILER_SDK_BITS("uCodeRes", uCodeRes))

ROCPROFILER_SDK_SAVED(rocprofiler_agent_cache_t,
    ROCPROFILER_SDK_FIELD(processor_id_low)
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(level)
    ROCPROFILER_SDK_FIELD(cache_line_size)
    ROCPROFILER_SDK_FIELD(cache_lines_per_tag)
    ROCPROFILER_SDK_FIELD(association)
    ROCPROFILER_SDK_FIELD(latency)
    ROCPROFILER_SDK_FIELD(type))

ROCPROFILER_SDK_SAVED(rocprofiler_agent_io_link_t,
    ROCPROFILER_SDK_FIELD(type)
    ROCPROFILER_SDK_FIELD(version_major)
    ROCPROFILER_SDK_FIELD(version_minor)
    ROCPROFILER_SDK_FIELD(node_from)
    ROCPROFILER_SDK_FIELD(node_to)
    ROCPROFILER_SDK_FIELD(weight)
    ROCPROFILER_SDK_FIELD(min_latency)
    ROCPROFILER_SDK_FIELD(max_latency)
    ROCPROFILER_SDK_FIELD(min_bandwidth)
    ROCPROFILER_SDK_FIELD(max_bandwidth)
    ROCPROFILER_SDK_FIELD(recommended_transfer_size)
    ROCPROFILER_SDK_FIELD(flags))

ROCPROFILER_SDK_SAVED(rocprofiler_agent_mem_bank_t,
    ROCPROFILER_SDK_FIELD(heap_type)
    ROCPROFILER_SDK_FIELD(flags)
    ROCPROFILER_SDK_FIELD(width)
    ROCPROFILER_SDK_FIELD(mem_clk_max)
    ROCPROFILER_SDK_FIELD(size_in_bytes))

ROCPROFILER_SDK_SAVED(rocprofiler_agent_runtime_visiblity_t,
    ROCPROFILER_SDK_BITS("hsa", hsa)
    ROCPROFILER_SDK_BITS("hip", hip)
    ROCPROFILER_SDK_BITS("rccl", rccl)
    ROCPROFILER_SDK_BITS("rocdecode", rocdecode))

ROCPROFILER_SDK_SAVED(rocprofiler_agent_v0_t,
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(id)
    ROCPROFILER_SDK_FIELD(type)
    ROCPROFILER_SDK_FIELD(cpu_cores_count)
    ROCPROFILER_SDK_FIELD(simd_count)
    ROCPROFILER_SDK_FIELD(mem_banks_count)
    ROCPROFILER_SDK_FIELD(caches_count)
    ROCPROFILER_SDK_FIELD(io_links_count)
    ROCPROFILER_SDK_FIELD(cpu_core_id_base)
    ROCPROFILER_SDK_FIELD(simd_id_base)
    ROCPROFILER_SDK_FIELD(max_waves_per_simd)
    ROCPROFILER_SDK_FIELD(lds_size_in_kb)
    ROCPROFILER_SDK_FIELD(gds_size_in_kb)
    ROCPROFILER_SDK_FIELD(num_gws)
    ROCPROFILER_SDK_FIELD(wave_front_size)
    ROCPROFILER_SDK_FIELD(num_xcc)
    ROCPROFILER_SDK_FIELD(cu_count)
    ROCPROFILER_SDK_FIELD(array_count)
    ROCPROFILER_SDK_FIELD(num_shader_banks)
    ROCPROFILER_SDK_FIELD(simd_arrays_per_engine)
    ROCPROFILER_SDK_FIELD(cu_per_simd_array)
    ROCPROFILER_SDK_FIELD(simd_per_cu)
    ROCPROFILER_SDK_FIELD(max_slots_scratch_cu)
    ROCPROFILER_SDK_FIELD(gfx_target_version)
    ROCPROFILER_SDK_FIELD(vendor_id)
    ROCPROFILER_SDK_FIELD(device_id)
    ROCPROFILER_SDK_FIELD(location_id)
    ROCPROFILER_SDK_FIELD(domain)
    ROCPROFILER_SDK_FIELD(drm_render_minor)
    ROCPROFILER_SDK_FIELD(num_sdma_engines)
    ROCPROFILER_SDK_FIELD(num_sdma_xgmi_engines)
    ROCPROFILER_SDK_FIELD(num_sdma_queues_per_engine)
    ROCPROFILER_SDK_FIELD(num_cp_queues)
    ROCPROFILER_SDK_FIELD(max_engine_clk_ccompute)
    ROCPROFILER_SDK_FIELD(max_engine_clk_fcompute)
    ROCPROFILER_SDK_FIELD(sdma_fw_version)
    ROCPROFILER_SDK_FIELD(fw_version)
    ROCPROFILER_SDK_FIELD(capability)
    ROCPROFILER_SDK_FIELD(cu_per_engine)
    ROCPROFILER_SDK_FIELD(max_waves_per_cu)
    ROCPROFILER_SDK_FIELD(family_id)
    ROCPROFILER_SDK_FIELD(workgroup_max_size)
    ROCPROFILER_SDK_FIELD(grid_max_size)
    ROCPROFILER_SDK_FIELD(local_mem_size)
    ROCPROFILER_SDK_FIELD(hive_id)
    ROCPROFILER_SDK_FIELD(gpu_id)
    ROCPROFILER_SDK_FIELD(workgroup_max_dim)
    ROCPROFILER_SDK_FIELD(grid_max_dim)
    ROCPROFILER_SDK_TEXT(name)
    ROCPROFILER_SDK_TEXT(vendor_name)
    ROCPROFILER_SDK_TEXT(product_name)
    ROCPROFILER_SDK_TEXT(model_name)
    ROCPROFILER_SDK_FIELD(node_id)
    ROCPROFILER_SDK_FIELD(logical_node_id)
    ROCPROFILER_SDK_FIELD(logical_node_type_id)
    ROCPROFILER_SDK_FIELD(runtime_visibility)
    ROCPROFILER_SDK_FIELD(uuid)
    ROCPROFILER_SDK_EACH("mem_banks", mem_banks, mem_banks_count)
    ROCPROFILER_SDK_EACH("caches", caches, caches_count)
    ROCPROFILER_SDK_EACH("io_links", io_links, io_links_count))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_t,
    ROCPROFILER_SDK_FIELD(code_object_id)
    ROCPROFILER_SDK_FIELD(code_object_offset))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_sampling_hw_id_v0_t,
    ROCPROFILER_SDK_BITS("chiplet", chiplet)
    ROCPROFILER_SDK_BITS("wave_id", wave_id)
    ROCPROFILER_SDK_BITS("simd_id", simd_id)
    ROCPROFILER_SDK_BITS("pipe_id", pipe_id)
    ROCPROFILER_SDK_BITS("cu_or_wgp_id", cu_or_wgp_id)
    ROCPROFILER_SDK_BITS("shader_array_id", shader_array_id)
    ROCPROFILER_SDK_BITS("shader_engine_id", shader_engine_id)
    ROCPROFILER_SDK_BITS("workgroup_id ", workgroup_id)
    ROCPROFILER_SDK_BITS("vm_id", vm_id)
    ROCPROFILER_SDK_BITS("queue_id", queue_id)
    ROCPROFILER_SDK_BITS("microengine_id", microengine_id))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_sampling_record_host_trap_v0_t,
    ROCPROFILER_SDK_FIELD(hw_id)
    ROCPROFILER_SDK_FIELD(pc)
    ROCPROFILER_SDK_FIELD(exec_mask)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(dispatch_id)
    ROCPROFILER_SDK_FIELD_AS("corr_id", data.correlation_id)
    ROCPROFILER_SDK_FIELD_AS("wrkgrp_id", data.workgroup_id)
    ROCPROFILER_SDK_BITS("wave_in_grp", wave_in_group))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_sampling_record_stochastic_header_t,
    ROCPROFILER_SDK_BITS("has_mem_cnt", has_memory_counter))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_sampling_snapshot_v0_t,
    { const char* const word = rocprofiler_get_pc_sampling_instruction_not_issued_reason_name(static_cast<rocprofiler_pc_sampling_instruction_not_issued_reason_t>(data.reason_not_issued)); ar(make_nvp("stall_reason", std::string(word != nullptr ? word : ""))); }
    ROCPROFILER_SDK_BITS("dual_issue_valu", dual_issue_valu)
    ROCPROFILER_SDK_BITS("arb_state_issue_valu", arb_state_issue_valu)
    ROCPROFILER_SDK_BITS("arb_state_issue_matrix", arb_state_issue_matrix)
    ROCPROFILER_SDK_BITS("arb_state_issue_lds", arb_state_issue_lds)
    ROCPROFILER_SDK_BITS("arb_state_issue_lds_direct", arb_state_issue_lds_direct)
    ROCPROFILER_SDK_BITS("arb_state_issue_scalar", arb_state_issue_scalar)
    ROCPROFILER_SDK_BITS("arb_state_issue_vmem_tex", arb_state_issue_vmem_tex)
    ROCPROFILER_SDK_BITS("arb_state_issue_flat", arb_state_issue_flat)
    ROCPROFILER_SDK_BITS("arb_state_issue_exp", arb_state_issue_exp)
    ROCPROFILER_SDK_BITS("arb_state_issue_misc", arb_state_issue_misc)
    ROCPROFILER_SDK_BITS("arb_state_issue_brmsg", arb_state_issue_brmsg)
    ROCPROFILER_SDK_BITS("arb_state_stall_valu", arb_state_stall_valu)
    ROCPROFILER_SDK_BITS("arb_state_stall_matrix", arb_state_stall_matrix)
    ROCPROFILER_SDK_BITS("arb_state_stall_lds", arb_state_stall_lds)
    ROCPROFILER_SDK_BITS("arb_state_stall_lds_direct", arb_state_stall_lds_direct)
    ROCPROFILER_SDK_BITS("arb_state_stall_scalar", arb_state_stall_scalar)
    ROCPROFILER_SDK_BITS("arb_state_stall_vmem_tex", arb_state_stall_vmem_tex)
    ROCPROFILER_SDK_BITS("arb_state_stall_flat", arb_state_stall_flat)
    ROCPROFILER_SDK_BITS("arb_state_stall_exp", arb_state_stall_exp)
    ROCPROFILER_SDK_BITS("arb_state_stall_misc", arb_state_stall_misc)
    ROCPROFILER_SDK_BITS("arb_state_stall_brmsg", arb_state_stall_brmsg))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_sampling_record_stochastic_v0_t,
    ROCPROFILER_SDK_FIELD(flags)
    ROCPROFILER_SDK_FIELD(hw_id)
    ROCPROFILER_SDK_FIELD(pc)
    ROCPROFILER_SDK_FIELD(exec_mask)
    ROCPROFILER_SDK_FIELD(timestamp)
    ROCPROFILER_SDK_FIELD(dispatch_id)
    ROCPROFILER_SDK_FIELD_AS("corr_id", data.correlation_id)
    ROCPROFILER_SDK_FIELD_AS("wrkgrp_id", data.workgroup_id)
    ROCPROFILER_SDK_BITS("wave_in_grp", wave_in_group)
    ROCPROFILER_SDK_BITS("wave_issued", wave_issued)
    { const char* const word = rocprofiler_get_pc_sampling_instruction_type_name(static_cast<rocprofiler_pc_sampling_instruction_type_t>(data.inst_type)); ar(make_nvp("inst_type", std::string(word != nullptr ? word : ""))); }
    ROCPROFILER_SDK_BITS("wave_cnt", wave_count)
    ROCPROFILER_SDK_FIELD(snapshot))

ROCPROFILER_SDK_SAVED(rocprofiler_pc_sampling_configuration_t,
    ROCPROFILER_SDK_FIELD(method)
    ROCPROFILER_SDK_FIELD(unit)
    ROCPROFILER_SDK_FIELD(min_interval)
    ROCPROFILER_SDK_FIELD(max_interval)
    ROCPROFILER_SDK_FIELD(flags))

ROCPROFILER_SDK_SAVED(rocprofiler_counter_record_dimension_info_t,
    ROCPROFILER_SDK_FIELD(id)
    ROCPROFILER_SDK_FIELD(instance_size)
    ROCPROFILER_SDK_TEXT(name))

ROCPROFILER_SDK_SAVED(rocprofiler_counter_info_v0_t,
    ROCPROFILER_SDK_FIELD(id)
    ROCPROFILER_SDK_BITS("is_constant", is_constant)
    ROCPROFILER_SDK_BITS("is_derived", is_derived)
    ROCPROFILER_SDK_TEXT(name)
    ROCPROFILER_SDK_TEXT(description)
    ROCPROFILER_SDK_TEXT(block)
    ROCPROFILER_SDK_TEXT(expression))

template <typename Archive, typename Kind, typename Text>
void save(Archive& ar, const ::rocprofiler::sdk::utility::name_info_impl<Kind, Text>& data)
{
    std::vector<std::string> operations;
    for (const Text& one : data.operations)
        operations.emplace_back(one);
    ar(make_nvp("kind", std::string(data.name)));
    ar(make_nvp("operations", operations));
}

template <typename Archive, typename Kind, typename Text>
void save(Archive& ar, const ::rocprofiler::sdk::utility::name_info<Kind, Text>& data)
{
    ar.makeArray();
    for (const auto& one : data)
        ar(make_nvp("entry", one));
}

ROCPROFILER_SDK_CEREAL_NAMESPACE_END

#undef ROCPROFILER_SDK_SAVED
#undef ROCPROFILER_SDK_FIELD
#undef ROCPROFILER_SDK_FIELD_AS
#undef ROCPROFILER_SDK_BITS
#undef ROCPROFILER_SDK_TEXT
#undef ROCPROFILER_SDK_EACH

#endif
