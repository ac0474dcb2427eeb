/* What a tool of the test needs of AMD's C API. Layouts are asserted in a file that the test makes from api/rocprofiler_sdk.json. */
#ifndef SDK_H
#define SDK_H
#include <stddef.h>
#include <stdint.h>

typedef struct { uint64_t handle; } rocprofiler_context_id_t;
typedef struct { uint64_t handle; } rocprofiler_buffer_id_t;
typedef struct { uint64_t handle; } rocprofiler_callback_thread_t;
typedef struct { uint64_t handle; } rocprofiler_agent_id_t;
typedef struct { uint64_t handle; } rocprofiler_queue_id_t;
typedef union { uint64_t value; void *ptr; } rocprofiler_user_data_t;
typedef struct { uint64_t internal; rocprofiler_user_data_t external; uint64_t ancestor; } rocprofiler_correlation_id_t;
typedef struct { uint64_t internal; rocprofiler_user_data_t external; } rocprofiler_async_correlation_id_t;
typedef struct { uint32_t x, y, z; } rocprofiler_dim3_t;
typedef struct { uint64_t hash_or_category_and_kind; void *payload; } rocprofiler_record_header_t;

typedef struct {
    uint64_t size; int kind; int operation; rocprofiler_correlation_id_t correlation_id;
    uint64_t start_timestamp, end_timestamp, thread_id;
} rocprofiler_buffer_tracing_hsa_api_record_t;
typedef rocprofiler_buffer_tracing_hsa_api_record_t rocprofiler_buffer_tracing_hip_api_record_t;
typedef struct {
    uint64_t size; int kind; int operation; rocprofiler_correlation_id_t correlation_id;
    uint64_t start_timestamp, end_timestamp, thread_id;
    union {
        struct { const void *function_address; rocprofiler_dim3_t numBlocks, dimBlocks; void **args; size_t sharedMemBytes; void *stream; } hipLaunchKernel;
        struct { void **ptr; size_t size; } hipMalloc;
        unsigned char all[88];
    } args;
    union { int hipError_t_retval; unsigned char all[24]; uint64_t align; } retval;
} rocprofiler_buffer_tracing_hip_api_ext_record_t;
typedef struct {
    uint64_t size; rocprofiler_agent_id_t agent_id; rocprofiler_queue_id_t queue_id; uint64_t kernel_id, dispatch_id;
    uint32_t private_segment_size, group_segment_size; rocprofiler_dim3_t workgroup_size, grid_size; uint8_t reserved_padding[56];
} rocprofiler_kernel_dispatch_info_t;
typedef struct {
    uint64_t size; int kind; int operation; rocprofiler_async_correlation_id_t correlation_id;
    uint64_t thread_id, start_timestamp, end_timestamp; rocprofiler_kernel_dispatch_info_t dispatch_info;
} rocprofiler_buffer_tracing_kernel_dispatch_record_t;
typedef struct {
    uint64_t size; int kind; int operation; rocprofiler_async_correlation_id_t correlation_id;
    uint64_t thread_id, start_timestamp, end_timestamp; rocprofiler_agent_id_t dst_agent_id, src_agent_id;
    uint64_t bytes, dst_address, src_address;
} rocprofiler_buffer_tracing_memory_copy_record_t;
typedef struct {
    rocprofiler_context_id_t context_id; uint64_t thread_id; rocprofiler_correlation_id_t correlation_id;
    int kind, operation, phase; void *payload;
} rocprofiler_callback_tracing_record_t;
typedef struct {
    uint64_t size, code_object_id; rocprofiler_agent_id_t agent; uint64_t hsa_agent; const char *uri;
    uint64_t load_base, load_size; int64_t load_delta; int storage_type; uint64_t memory_base, memory_size;
} rocprofiler_callback_tracing_code_object_load_data_t;
typedef struct {
    uint64_t size, kernel_id, code_object_id; const char *kernel_name; uint64_t kernel_object;
    uint32_t kernarg_segment_size, kernarg_segment_alignment, group_segment_size, private_segment_size;
    uint32_t sgpr_count, arch_vgpr_count, accum_vgpr_count; int64_t kernel_code_entry_byte_offset; uint64_t kernel_address;
} rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t;
typedef struct { size_t size; const char *name; const uint32_t handle; } rocprofiler_client_id_t;
typedef void (*client_finalize)(rocprofiler_client_id_t);
typedef struct {
    size_t size; int (*initialize)(client_finalize, void *); void (*finalize)(void *); void *tool_data;
} rocprofiler_tool_configure_result_t;
typedef struct {
    size_t size; int (*tool_attach)(client_finalize, rocprofiler_context_id_t *, uint64_t, void *); void (*tool_detach)(void *);
    void *tool_data;
} rocprofiler_tool_configure_attach_result_t;

typedef void (*buffer_callback)(rocprofiler_context_id_t, rocprofiler_buffer_id_t, rocprofiler_record_header_t **, size_t, void *, uint64_t);
typedef void (*tracing_callback)(rocprofiler_callback_tracing_record_t, rocprofiler_user_data_t *, void *);
typedef int (*agents_callback)(int, const void **, size_t, void *);
typedef void (*thread_notice)(int, void *);

int rocprofiler_create_context(rocprofiler_context_id_t *);
int rocprofiler_start_context(rocprofiler_context_id_t);
int rocprofiler_stop_context(rocprofiler_context_id_t);
int rocprofiler_context_is_active(rocprofiler_context_id_t, int *);
int rocprofiler_context_is_valid(rocprofiler_context_id_t, int *);
int rocprofiler_create_buffer(rocprofiler_context_id_t, size_t, size_t, int, buffer_callback, void *, rocprofiler_buffer_id_t *);
int rocprofiler_flush_buffer(rocprofiler_buffer_id_t);
int rocprofiler_destroy_buffer(rocprofiler_buffer_id_t);
int rocprofiler_configure_buffer_tracing_service(rocprofiler_context_id_t, int, const int32_t *, size_t, rocprofiler_buffer_id_t);
int rocprofiler_configure_callback_tracing_service(rocprofiler_context_id_t, int, const int32_t *, size_t, tracing_callback, void *);
int rocprofiler_create_callback_thread(rocprofiler_callback_thread_t *);
int rocprofiler_assign_callback_thread(rocprofiler_buffer_id_t, rocprofiler_callback_thread_t);
int rocprofiler_at_internal_thread_create(thread_notice, thread_notice, int, void *);
int rocprofiler_query_buffer_tracing_kind_name(int, const char **, uint64_t *);
int rocprofiler_query_buffer_tracing_kind_operation_name(int, int32_t, const char **, uint64_t *);
int rocprofiler_iterate_buffer_tracing_kinds(int (*)(int, void *), void *);
int rocprofiler_iterate_buffer_tracing_kind_operations(int, int (*)(int, int32_t, void *), void *);
int rocprofiler_iterate_buffer_tracing_record_args(rocprofiler_record_header_t, int (*)(int, int32_t, uint32_t, const void *, int32_t, const char *, const char *, const char *, void *), void *);
int rocprofiler_query_intercept_table_name(int, const char **, uint64_t *);
int rocprofiler_query_available_agents(int, agents_callback, size_t, void *);
int rocprofiler_get_version(uint32_t *, uint32_t *, uint32_t *);
int rocprofiler_get_timestamp(uint64_t *);
int rocprofiler_get_thread_id(uint64_t *);
int rocprofiler_is_initialized(int *);
int rocprofiler_is_current_client_attachment(void);
const char *rocprofiler_get_status_name(int);
const char *rocprofiler_get_status_string(int);
int rocprofiler_iterate_runtime_registration_info(void *, void *);
#endif
