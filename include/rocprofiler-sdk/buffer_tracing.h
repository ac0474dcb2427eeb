/* rocprofiler-sdk: records of what happened, collected in buffers. rocDecode's records with arguments are not declared: nothing here
 * traces that library.
 */
#ifndef ROCPROFILER_SDK_BUFFER_TRACING_H_
#define ROCPROFILER_SDK_BUFFER_TRACING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hip/api_args.h>
#include <rocprofiler-sdk/hsa/scratch_memory_id.h>
#include <rocprofiler-sdk/kfd/kfd_id.h>
#include <rocprofiler-sdk/rocdecode.h>
#include <stdint.h>

ROCPROFILER_EXTERN_C_INIT

/* A call of an HSA function: HSA_CORE_API, HSA_AMD_EXT_API, HSA_IMAGE_EXT_API, HSA_FINALIZE_EXT_API. */
typedef struct rocprofiler_buffer_tracing_hsa_api_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_hsa_api_record_t;

/* A call of a HIP function: HIP_RUNTIME_API, HIP_COMPILER_API. */
typedef struct rocprofiler_buffer_tracing_hip_api_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_hip_api_record_t;

/* The same with arguments and result: HIP_RUNTIME_API_EXT, HIP_COMPILER_API_EXT. Pointers among the arguments are kept as they
 * were passed; what they point to may be gone. */
typedef struct rocprofiler_buffer_tracing_hip_api_ext_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_hip_api_args_t args;
    rocprofiler_hip_api_retval_t retval;
} rocprofiler_buffer_tracing_hip_api_ext_record_t;

/* OpenMP: a target construct. */
typedef struct rocprofiler_buffer_tracing_ompt_target_t
{
    int32_t kind;
    int32_t device_num;
    uint64_t task_id;
    uint64_t target_id;
    const void* codeptr_ra;
} rocprofiler_buffer_tracing_ompt_target_t;

/* OpenMP: a transfer or an allocation. */
typedef struct rocprofiler_buffer_tracing_ompt_target_data_op_t
{
    uint64_t host_op_id;
    int32_t optype;
    int32_t src_device_num;
    int32_t dst_device_num;
    int32_t reserved;
    uint64_t bytes;
    const void* codeptr_ra;
} rocprofiler_buffer_tracing_ompt_target_data_op_t;

/* OpenMP: a kernel. */
typedef struct rocprofiler_buffer_tracing_ompt_target_kernel_t
{
    uint64_t host_op_id;
    int32_t device_num;
    uint32_t requested_num_teams;
} rocprofiler_buffer_tracing_ompt_target_kernel_t;

/* OMPT: what of OpenMP happened, by operation. */
typedef struct rocprofiler_buffer_tracing_ompt_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
    union
    {
        rocprofiler_buffer_tracing_ompt_target_t target;
        rocprofiler_buffer_tracing_ompt_target_data_op_t target_data_op;
        rocprofiler_buffer_tracing_ompt_target_kernel_t target_kernel;
        uint64_t reserved[5];
    };
} rocprofiler_buffer_tracing_ompt_record_t;

/* A call of a marker function: MARKER_CORE_API, MARKER_CONTROL_API, MARKER_NAME_API, MARKER_CORE_RANGE_API. The message comes
 * with callbacks only. */
typedef struct rocprofiler_buffer_tracing_marker_api_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_marker_api_record_t;

/* RCCL_API. */
typedef struct rocprofiler_buffer_tracing_rccl_api_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_rccl_api_record_t;

/* ROCDECODE_API. */
typedef struct rocprofiler_buffer_tracing_rocdecode_api_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_rocdecode_api_id_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_rocdecode_api_record_t;

/* ROCDECODE_API_EXT: a call with its arguments and result. */
typedef struct rocprofiler_buffer_tracing_rocdecode_api_ext_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_rocdecode_api_id_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_rocdecode_api_args_t args;
    rocprofiler_rocdecode_api_retval_t retval;
} rocprofiler_buffer_tracing_rocdecode_api_ext_record_t;

/* ROCJPEG_API. */
typedef struct rocprofiler_buffer_tracing_rocjpeg_api_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_tracing_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_thread_id_t thread_id;
} rocprofiler_buffer_tracing_rocjpeg_api_record_t;

/* MEMORY_COPY: a copy, with the device's times. `thread_id` is the thread that asked for it. */
typedef struct rocprofiler_buffer_tracing_memory_copy_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_memory_copy_operation_t operation;
    rocprofiler_async_correlation_id_t correlation_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t dst_agent_id;
    rocprofiler_agent_id_t src_agent_id;
    uint64_t bytes;
    rocprofiler_address_t dst_address;
    rocprofiler_address_t src_address;
} rocprofiler_buffer_tracing_memory_copy_record_t;

/* MEMORY_ALLOCATION: memory that was allocated or freed (then without a size). */
typedef struct rocprofiler_buffer_tracing_memory_allocation_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_memory_allocation_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_address_t address;
    uint64_t allocation_size;
} rocprofiler_buffer_tracing_memory_allocation_record_t;

/* KERNEL_DISPATCH: a kernel, with the device's times. `thread_id` is the thread that dispatched it. */
typedef struct rocprofiler_buffer_tracing_kernel_dispatch_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kernel_dispatch_operation_t operation;
    rocprofiler_async_correlation_id_t correlation_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_buffer_tracing_kernel_dispatch_record_t;

/* HIP_EVENT: the barrier of a call that records an event, or that has a stream wait for one. */
typedef struct rocprofiler_buffer_tracing_hip_event_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_hip_event_operation_t operation;
    rocprofiler_async_correlation_id_t correlation_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_queue_id_t queue_id;
    uint64_t hip_event_handle;              /* the hipEvent_t */
    rocprofiler_queue_id_t source_queue_id; /* where the event was recorded */
} rocprofiler_buffer_tracing_hip_event_record_t;

/* HIP_GRAPH: a launch of an executable graph that succeeded. */
typedef struct rocprofiler_buffer_tracing_hip_graph_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    uint32_t operation; /* rocprofiler_hip_graph_operation_t */
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t start_timestamp; /* of the call */
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_agent_id_t agent_id; /* 0: the call does not say it */
    rocprofiler_queue_id_t queue_id; /* the same */
    rocprofiler_graph_exec_id_t graph_exec_id;
    uint64_t kernel_dispatch_count;
} rocprofiler_buffer_tracing_hip_graph_record_t;

/* KFD_EVENT_PAGE_MIGRATE: pages moved, as the driver told it. */
typedef struct rocprofiler_buffer_tracing_kfd_event_page_migrate_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_event_page_migrate_operation_t operation;
    rocprofiler_timestamp_t timestamp;
    uint32_t pid;
    rocprofiler_address_t start_address;
    rocprofiler_address_t end_address;
    rocprofiler_agent_id_t src_agent;
    rocprofiler_agent_id_t dst_agent;
    rocprofiler_agent_id_t prefetch_agent;
    rocprofiler_agent_id_t preferred_agent;
    int32_t error_code;
} rocprofiler_buffer_tracing_kfd_event_page_migrate_record_t;

/* KFD_EVENT_PAGE_FAULT. */
typedef struct rocprofiler_buffer_tracing_kfd_event_page_fault_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_event_page_fault_operation_t operation;
    rocprofiler_timestamp_t timestamp;
    uint32_t pid;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_address_t address;
} rocprofiler_buffer_tracing_kfd_event_page_fault_record_t;

/* KFD_EVENT_QUEUE: a queue taken off the device or put back. */
typedef struct rocprofiler_buffer_tracing_kfd_event_queue_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_event_queue_operation_t operation;
    rocprofiler_timestamp_t timestamp;
    uint32_t pid;
    rocprofiler_agent_id_t agent_id;
} rocprofiler_buffer_tracing_kfd_event_queue_record_t;

/* KFD_EVENT_UNMAP_FROM_GPU. */
typedef struct rocprofiler_buffer_tracing_kfd_event_unmap_from_gpu_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_event_unmap_from_gpu_operation_t operation;
    rocprofiler_timestamp_t timestamp;
    uint32_t pid;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_address_t start_address;
    rocprofiler_address_t end_address;
} rocprofiler_buffer_tracing_kfd_event_unmap_from_gpu_record_t;

/* KFD_EVENT_DROPPED_EVENTS: how many events were lost. */
typedef struct rocprofiler_buffer_tracing_kfd_event_dropped_events_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_event_dropped_events_operation_t operation;
    rocprofiler_timestamp_t timestamp;
    uint32_t pid;
    uint32_t count;
} rocprofiler_buffer_tracing_kfd_event_dropped_events_record_t;

/* KFD_PAGE_MIGRATE: begin and end in one record. */
typedef struct rocprofiler_buffer_tracing_kfd_page_migrate_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_page_migrate_operation_t operation;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    uint32_t pid;
    rocprofiler_address_t start_address;
    rocprofiler_address_t end_address;
    rocprofiler_agent_id_t src_agent;
    rocprofiler_agent_id_t dst_agent;
    rocprofiler_agent_id_t prefetch_agent;
    rocprofiler_agent_id_t preferred_agent;
    int32_t error_code;
} rocprofiler_buffer_tracing_kfd_page_migrate_record_t;

/* KFD_PAGE_FAULT: begin and end in one record. */
typedef struct rocprofiler_buffer_tracing_kfd_page_fault_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_page_fault_operation_t operation;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    uint32_t pid;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_address_t address;
} rocprofiler_buffer_tracing_kfd_page_fault_record_t;

/* KFD_QUEUE: begin and end in one record. */
typedef struct rocprofiler_buffer_tracing_kfd_queue_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_kfd_queue_operation_t operation;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    uint32_t pid;
    rocprofiler_agent_id_t agent_id;
} rocprofiler_buffer_tracing_kfd_queue_record_t;

/* SCRATCH_MEMORY: scratch that a queue was given, gave back or lost. `flags`: what the runtime said of the allocation. */
typedef struct rocprofiler_buffer_tracing_scratch_memory_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_scratch_memory_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_agent_id_t agent_id;
    rocprofiler_queue_id_t queue_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t start_timestamp;
    rocprofiler_timestamp_t end_timestamp;
    rocprofiler_scratch_alloc_flag_t flags;
    uint64_t allocation_size;
} rocprofiler_buffer_tracing_scratch_memory_record_t;

/* CORRELATION_ID_RETIREMENT: nothing more will come with this correlation id. */
typedef struct rocprofiler_buffer_tracing_correlation_id_retirement_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_timestamp_t timestamp;
    uint64_t internal_correlation_id;
} rocprofiler_buffer_tracing_correlation_id_retirement_record_t;

/* RUNTIME_INITIALIZATION: a runtime was found, or came. `version`: 10000 major + 100 minor + patch. */
typedef struct rocprofiler_buffer_tracing_runtime_initialization_record_t
{
    uint64_t size; /* bytes of this struct */
    rocprofiler_buffer_tracing_kind_t kind;
    rocprofiler_runtime_initialization_operation_t operation;
    rocprofiler_correlation_id_t correlation_id;
    rocprofiler_thread_id_t thread_id;
    rocprofiler_timestamp_t timestamp;
    uint64_t version;
    uint64_t instance;
} rocprofiler_buffer_tracing_runtime_initialization_record_t;

/* Told of a kind. Not 0 ends the iteration. */
typedef int (*rocprofiler_buffer_tracing_kind_cb_t)(rocprofiler_buffer_tracing_kind_t kind, void* data);

/* Told of an operation. Not 0 ends the iteration. */
typedef int (*rocprofiler_buffer_tracing_kind_operation_cb_t)(rocprofiler_buffer_tracing_kind_t kind,
                                                              rocprofiler_tracing_operation_t operation,
                                                              void* data);

/* Told of an argument: its number, where its value is, how many levels of pointers it has, its type, name and value in words.
 * The texts live until it returns. Not 0 ends the iteration. */
typedef int (*rocprofiler_buffer_tracing_operation_args_cb_t)(rocprofiler_buffer_tracing_kind_t kind,
                                                              rocprofiler_tracing_operation_t operation,
                                                              uint32_t arg_number,
                                                              const void* const arg_value_addr,
                                                              int32_t arg_indirection_count,
                                                              const char* arg_type,
                                                              const char* arg_name,
                                                              const char* arg_value_str,
                                                              void* data);

/* Adds records of a kind to a context; only while tools initialize. `operations` NULL or 0 long: all of them. */
rocprofiler_status_t
rocprofiler_configure_buffer_tracing_service(rocprofiler_context_id_t context_id,
                                             rocprofiler_buffer_tracing_kind_t kind,
                                             const rocprofiler_tracing_operation_t* operations,
                                             size_t operations_count,
                                             rocprofiler_buffer_id_t buffer_id) ROCPROFILER_API;

/* The name of a kind, such as HIP_RUNTIME_API; lives for ever. `name_len` may be NULL. */
rocprofiler_status_t
rocprofiler_query_buffer_tracing_kind_name(rocprofiler_buffer_tracing_kind_t kind,
                                           const char** name,
                                           uint64_t* name_len) ROCPROFILER_API;

/* The name of an operation, such as hipMalloc; lives for ever. `name_len` may be NULL. */
rocprofiler_status_t
rocprofiler_query_buffer_tracing_kind_operation_name(rocprofiler_buffer_tracing_kind_t kind,
                                                     rocprofiler_tracing_operation_t operation,
                                                     const char** name,
                                                     uint64_t* name_len) ROCPROFILER_API;

/* Tells of each kind. */
rocprofiler_status_t
rocprofiler_iterate_buffer_tracing_kinds(rocprofiler_buffer_tracing_kind_cb_t callback,
                                         void* data) ROCPROFILER_API;

/* Tells of each operation of a kind. */
rocprofiler_status_t
rocprofiler_iterate_buffer_tracing_kind_operations(rocprofiler_buffer_tracing_kind_t kind,
                                                   rocprofiler_buffer_tracing_kind_operation_cb_t callback,
                                                   void* data) ROCPROFILER_API;

/* Tells of each argument of a record of an _EXT kind. */
rocprofiler_status_t
rocprofiler_iterate_buffer_tracing_record_args(rocprofiler_record_header_t record,
                                               rocprofiler_buffer_tracing_operation_args_cb_t callback,
                                               void* user_data) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
