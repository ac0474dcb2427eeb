/* rocprofiler-sdk: being called when something happens. The payloads of OpenMP, RCCL, rocDecode and rocJPEG are not declared: nothing
 * here traces those libraries.
 */
#ifndef ROCPROFILER_SDK_CALLBACK_TRACING_H_
#define ROCPROFILER_SDK_CALLBACK_TRACING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hip/api_args.h>
#include <rocprofiler-sdk/hsa/api_args.h>
#include <rocprofiler-sdk/hsa/runtime_types.h>
#include <rocprofiler-sdk/hsa/scratch_memory_args.h>
#include <rocprofiler-sdk/hsa/scratch_memory_id.h>
#include <rocprofiler-sdk/ompt.h>
#include <rocprofiler-sdk/rccl.h>
#include <rocprofiler-sdk/rocdecode.h>
#include <rocprofiler-sdk/rocjpeg.h>
#include <rocprofiler-sdk/marker/api_args.h>
#include <stdint.h>

/* The id that no code object has. */
#define ROCPROFILER_CODE_OBJECT_ID_NONE ROCPROFILER_UINT64_C(0)

ROCPROFILER_EXTERN_C_INIT

/* Where a code object was loaded from. */
typedef enum rocprofiler_code_object_storage_type_t
{
    ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_NONE = 0,
    ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_FILE = 1,
    ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_MEMORY = 2,
    ROCPROFILER_CODE_OBJECT_STORAGE_TYPE_LAST = 3
} rocprofiler_code_object_storage_type_t;

/* A call of an HSA function. At ENTER the result is not there yet. */
typedef struct rocprofiler_callback_tracing_hsa_api_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_hsa_api_args_t args;
    rocprofiler_hsa_api_retval_t retval;
} rocprofiler_callback_tracing_hsa_api_data_t;

/* A call of a HIP function. At ENTER the result is not there yet. */
typedef struct rocprofiler_callback_tracing_hip_api_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_hip_api_args_t args;
    rocprofiler_hip_api_retval_t retval;
} rocprofiler_callback_tracing_hip_api_data_t;

/* A call of a marker function. */
typedef struct rocprofiler_callback_tracing_marker_api_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_marker_api_args_t args;
    rocprofiler_marker_api_retval_t retval;
} rocprofiler_callback_tracing_marker_api_data_t;

/* CODE_OBJECT_LOAD: code that a device can run was loaded, or is about to be unloaded. */
typedef struct rocprofiler_callback_tracing_code_object_load_data_t
{
    uint64_t size;      /* bytes of this struct */
    uint64_t code_object_id;
    union
    {
        rocprofiler_agent_id_t rocp_agent; /* older name */
        rocprofiler_agent_id_t agent_id;
    };
    hsa_agent_t hsa_agent;
    const char* uri;
    uint64_t load_base;
    uint64_t load_size;
    int64_t load_delta; /* what is added to an address in the code object to have the loaded one */
    rocprofiler_code_object_storage_type_t storage_type;
    union
    {
        __extension__ struct
        {
            int storage_file; /* descriptor, if it came from a file */
        };
        __extension__ struct
        {
            uint64_t memory_base; /* its bytes, if it came from memory */
            uint64_t memory_size;
        };
    };
} rocprofiler_callback_tracing_code_object_load_data_t;

/* CODE_OBJECT_DEVICE_KERNEL_SYMBOL_REGISTER: a kernel in it. Sizes in bytes; register counts are those of one work item or wave. */
typedef struct rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t
{
    uint64_t size;      /* bytes of this struct */
    uint64_t kernel_id; /* what dispatches name it by */
    uint64_t code_object_id;
    const char* kernel_name;
    uint64_t kernel_object;
    uint32_t kernarg_segment_size;
    uint32_t kernarg_segment_alignment;
    uint32_t group_segment_size;
    uint32_t private_segment_size;
    uint32_t sgpr_count;
    uint32_t arch_vgpr_count;
    uint32_t accum_vgpr_count;
    int64_t kernel_code_entry_byte_offset;
    rocprofiler_address_t kernel_address;
} rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t;

/* CODE_OBJECT_HOST_KERNEL_SYMBOL_REGISTER: the function of the host that stands for a kernel. */
typedef struct rocprofiler_callback_tracing_code_object_host_kernel_symbol_register_data_t
{
    uint64_t size;      /* bytes of this struct */
    uint64_t host_function_id;
    uint64_t kernel_id; /* what dispatches name it by */
    uint64_t code_object_id;
    rocprofiler_address_t host_function;
    rocprofiler_address_t modules;
    const char* device_function;
    uint32_t thread_limit;
    rocprofiler_dim3_t thread_ids;
    rocprofiler_dim3_t block_ids;
    rocprofiler_dim3_t block_dims;
    rocprofiler_dim3_t grid_dims;
    uint64_t workgroup_size;
} rocprofiler_callback_tracing_code_object_host_kernel_symbol_register_data_t;

/* KERNEL_DISPATCH. Times are there when it is complete. */
typedef struct rocprofiler_callback_tracing_kernel_dispatch_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_callback_tracing_kernel_dispatch_data_t;

/* MEMORY_COPY. */
typedef struct rocprofiler_callback_tracing_memory_copy_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t dst_agent_id;
    rocprofiler_agent_id_t src_agent_id;
    uint64_t bytes;
    rocprofiler_address_t dst_address;
    rocprofiler_address_t src_address;
} rocprofiler_callback_tracing_memory_copy_data_t;

/* MEMORY_ALLOCATION. */
typedef struct rocprofiler_callback_tracing_memory_allocation_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_address_t address;
    uint64_t allocation_size;
} rocprofiler_callback_tracing_memory_allocation_data_t;

/* SCRATCH_MEMORY. */
typedef struct rocprofiler_callback_tracing_scratch_memory_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_agent_id_t agent_id;
    rocprofiler_queue_id_t queue_id;
    rocprofiler_scratch_alloc_flag_t flags;
    hsa_amd_tool_event_kind_t args_kind;
    rocprofiler_scratch_memory_args_t args;
} rocprofiler_callback_tracing_scratch_memory_data_t;

/* RUNTIME_INITIALIZATION. */
typedef struct rocprofiler_callback_tracing_runtime_initialization_data_t
{
    uint64_t size; /* bytes of this struct */
    uint64_t version;
    uint64_t instance;
} rocprofiler_callback_tracing_runtime_initialization_data_t;

/* HIP_STREAM. */
typedef struct rocprofiler_callback_tracing_hip_stream_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_stream_id_t stream_id;
    rocprofiler_address_t stream_value;
} rocprofiler_callback_tracing_hip_stream_data_t;

/* HIP_GRAPH: an executable graph. */
typedef struct rocprofiler_callback_tracing_hip_graph_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_graph_exec_id_t graph_exec_id;
    rocprofiler_address_t graph_exec_value; /* the hipGraphExec_t */
} rocprofiler_callback_tracing_hip_graph_data_t;

/* HIP_EVENT: a barrier of an event that has ended (phase NONE). AMD's library also calls around its enqueuing, with times of 0. */
typedef struct rocprofiler_callback_tracing_hip_event_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_queue_id_t queue_id;
    uint64_t hip_event_handle;              /* the hipEvent_t */
    rocprofiler_queue_id_t source_queue_id; /* where the event was recorded */
} rocprofiler_callback_tracing_hip_event_data_t;

/* OMPT. A region has an ENTER and an EXIT; other events have no phase. */
typedef struct rocprofiler_callback_tracing_ompt_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_ompt_args_t args;
} rocprofiler_callback_tracing_ompt_data_t;

/* RCCL_API. */
typedef struct rocprofiler_callback_tracing_rccl_api_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_rccl_api_args_t args;
    rocprofiler_rccl_api_retval_t retval; /* at EXIT */
} rocprofiler_callback_tracing_rccl_api_data_t;

/* ROCDECODE_API. */
typedef struct rocprofiler_callback_tracing_rocdecode_api_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_rocdecode_api_args_t args;
    rocprofiler_rocdecode_api_retval_t retval; /* at EXIT */
} rocprofiler_callback_tracing_rocdecode_api_data_t;

/* ROCJPEG_API. */
typedef struct rocprofiler_callback_tracing_rocjpeg_api_data_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_rocjpeg_api_args_t args;
    rocprofiler_rocjpeg_api_retval_t retval; /* at EXIT */
} rocprofiler_callback_tracing_rocjpeg_api_data_t;

/* Called by the thread that makes the call. `user_data` is the same word at ENTER and EXIT of one call; `callback_data` is what
 * the tool gave when it configured the service. */
typedef void (*rocprofiler_callback_tracing_cb_t)(rocprofiler_callback_tracing_record_t record,
                                                  rocprofiler_user_data_t* user_data,
                                                  void* callback_data);

/* Told of a kind. Not 0 ends the iteration. */
typedef int (*rocprofiler_callback_tracing_kind_cb_t)(rocprofiler_callback_tracing_kind_t kind, void* data);

/* Told of an operation. Not 0 ends the iteration. */
typedef int (*rocprofiler_callback_tracing_kind_operation_cb_t)(rocprofiler_callback_tracing_kind_t kind,
                                                                rocprofiler_tracing_operation_t operation,
                                                                void* data);

/* Told of an argument: its number, where its value is, how many levels of pointers it has, its type, name and value in words,
 * and how many levels were followed. The texts live until it returns. Not 0 ends the iteration. */
typedef int (*rocprofiler_callback_tracing_operation_args_cb_t)(rocprofiler_callback_tracing_kind_t kind,
                                                                rocprofiler_tracing_operation_t operation,
                                                                uint32_t arg_number,
                                                                const void* const arg_value_addr,
                                                                int32_t arg_indirection_count,
                                                                const char* arg_type,
                                                                const char* arg_name,
                                                                const char* arg_value_str,
                                                                int32_t arg_dereference_count,
                                                                void* data);

/* Adds callbacks of a kind to a context; only while tools initialize. `operations` NULL or 0 long: all of them. A kind of a
 * library that is not traced is accepted, and has no events. */
rocprofiler_status_t
rocprofiler_configure_callback_tracing_service(rocprofiler_context_id_t context_id,
                                               rocprofiler_callback_tracing_kind_t kind,
                                               const rocprofiler_tracing_operation_t* operations,
                                               size_t operations_count,
                                               rocprofiler_callback_tracing_cb_t callback,
                                               void* callback_args) ROCPROFILER_API;

/* The name of a kind; lives for ever. `name_len` may be NULL. */
rocprofiler_status_t
rocprofiler_query_callback_tracing_kind_name(rocprofiler_callback_tracing_kind_t kind,
                                             const char** name,
                                             uint64_t* name_len) ROCPROFILER_API;

/* The name of an operation; lives for ever. `name_len` may be NULL. */
rocprofiler_status_t
rocprofiler_query_callback_tracing_kind_operation_name(rocprofiler_callback_tracing_kind_t kind,
                                                       rocprofiler_tracing_operation_t operation,
                                                       const char** name,
                                                       uint64_t* name_len) ROCPROFILER_API;

/* Tells of each kind. */
rocprofiler_status_t
rocprofiler_iterate_callback_tracing_kinds(rocprofiler_callback_tracing_kind_cb_t callback,
                                           void* data) ROCPROFILER_API;

/* Tells of each operation of a kind. */
rocprofiler_status_t
rocprofiler_iterate_callback_tracing_kind_operations(rocprofiler_callback_tracing_kind_t kind,
                                                     rocprofiler_callback_tracing_kind_operation_cb_t callback,
                                                     void* data) ROCPROFILER_API;

/* Tells of each argument of a call, from inside its callback. Pointers are followed at most `max_dereference_count` times. */
rocprofiler_status_t
rocprofiler_iterate_callback_tracing_kind_operation_args(rocprofiler_callback_tracing_record_t record,
                                                         rocprofiler_callback_tracing_operation_args_cb_t callback,
                                                         int32_t max_dereference_count,
                                                         void* user_data) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
