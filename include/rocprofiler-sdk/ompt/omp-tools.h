/* OpenMP's tool interface, as far as the SDK's arguments need it: types and numbers of OpenMP 5.2. A compiler's own omp-tools.h
   may be included before this one. */
#ifndef ROCPROFILER_SDK_OMPT_OMP_TOOLS_H_
#define ROCPROFILER_SDK_OMPT_OMP_TOOLS_H_
#ifndef __OMPT__
#define __OMPT__

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ompt_thread_t
{
    ompt_thread_initial = 1,
    ompt_thread_worker = 2,
    ompt_thread_other = 3,
    ompt_thread_unknown = 4,
} ompt_thread_t;

typedef enum ompt_scope_endpoint_t
{
    ompt_scope_begin = 1,
    ompt_scope_end = 2,
    ompt_scope_beginend = 3,
} ompt_scope_endpoint_t;

typedef enum ompt_dispatch_t
{
    ompt_dispatch_iteration = 1,
    ompt_dispatch_section = 2,
    ompt_dispatch_ws_loop_chunk = 3,
    ompt_dispatch_taskloop_chunk = 4,
    ompt_dispatch_distribute_chunk = 5,
} ompt_dispatch_t;

typedef enum ompt_sync_region_t
{
    ompt_sync_region_barrier = 1,
    ompt_sync_region_barrier_implicit = 2,
    ompt_sync_region_barrier_explicit = 3,
    ompt_sync_region_barrier_implementation = 4,
    ompt_sync_region_taskwait = 5,
    ompt_sync_region_taskgroup = 6,
    ompt_sync_region_reduction = 7,
    ompt_sync_region_barrier_implicit_workshare = 8,
    ompt_sync_region_barrier_implicit_parallel = 9,
    ompt_sync_region_barrier_teams = 10,
} ompt_sync_region_t;

typedef enum ompt_target_data_op_t
{
    ompt_target_data_alloc = 1,
    ompt_target_data_transfer_to_device = 2,
    ompt_target_data_transfer_from_device = 3,
    ompt_target_data_delete = 4,
    ompt_target_data_associate = 5,
    ompt_target_data_disassociate = 6,
    ompt_target_data_alloc_async = 17,
    ompt_target_data_transfer_to_device_async = 18,
    ompt_target_data_transfer_from_device_async = 19,
    ompt_target_data_delete_async = 20,
} ompt_target_data_op_t;

typedef enum ompt_work_t
{
    ompt_work_loop = 1,
    ompt_work_sections = 2,
    ompt_work_single_executor = 3,
    ompt_work_single_other = 4,
    ompt_work_workshare = 5,
    ompt_work_distribute = 6,
    ompt_work_taskloop = 7,
    ompt_work_scope = 8,
    ompt_work_loop_static = 10,
    ompt_work_loop_dynamic = 11,
    ompt_work_loop_guided = 12,
    ompt_work_loop_other = 13,
} ompt_work_t;

typedef enum ompt_mutex_t
{
    ompt_mutex_lock = 1,
    ompt_mutex_test_lock = 2,
    ompt_mutex_nest_lock = 3,
    ompt_mutex_test_nest_lock = 4,
    ompt_mutex_critical = 5,
    ompt_mutex_atomic = 6,
    ompt_mutex_ordered = 7,
} ompt_mutex_t;

typedef enum ompt_task_flag_t
{
    ompt_task_initial = 1,
    ompt_task_implicit = 2,
    ompt_task_explicit = 4,
    ompt_task_target = 8,
    ompt_task_taskwait = 16,
    ompt_task_undeferred = 0x8000000,
    ompt_task_untied = 0x10000000,
    ompt_task_final = 0x20000000,
    ompt_task_mergeable = 0x40000000,
    ompt_task_merged = -0x7fffffff - 1, /* 0x80000000 */
} ompt_task_flag_t;

typedef enum ompt_task_status_t
{
    ompt_task_complete = 1,
    ompt_task_yield = 2,
    ompt_task_cancel = 3,
    ompt_task_detach = 4,
    ompt_task_early_fulfill = 5,
    ompt_task_late_fulfill = 6,
    ompt_task_switch = 7,
    ompt_taskwait_complete = 8,
} ompt_task_status_t;

typedef enum ompt_target_t
{
    ompt_target = 1,
    ompt_target_enter_data = 2,
    ompt_target_exit_data = 3,
    ompt_target_update = 4,
    ompt_target_nowait = 9,
    ompt_target_enter_data_nowait = 10,
    ompt_target_exit_data_nowait = 11,
    ompt_target_update_nowait = 12,
} ompt_target_t;

typedef enum ompt_parallel_flag_t
{
    ompt_parallel_invoker_program = 1,
    ompt_parallel_invoker_runtime = 2,
    ompt_parallel_league = 0x40000000,
    ompt_parallel_team = -0x7fffffff - 1, /* 0x80000000 */
} ompt_parallel_flag_t;

typedef enum ompt_dependence_type_t
{
    ompt_dependence_type_in = 1,
    ompt_dependence_type_out = 2,
    ompt_dependence_type_inout = 3,
    ompt_dependence_type_mutexinoutset = 4,
    ompt_dependence_type_source = 5,
    ompt_dependence_type_sink = 6,
    ompt_dependence_type_inoutset = 7,
    ompt_dependence_type_out_all_memory = 34,
    ompt_dependence_type_inout_all_memory = 35,
} ompt_dependence_type_t;

typedef enum ompt_severity_t
{
    ompt_warning = 1,
    ompt_fatal = 2,
} ompt_severity_t;

typedef enum ompt_cancel_flag_t
{
    ompt_cancel_parallel = 1,
    ompt_cancel_sections = 2,
    ompt_cancel_loop = 4,
    ompt_cancel_taskgroup = 8,
    ompt_cancel_activated = 16,
    ompt_cancel_detected = 32,
    ompt_cancel_discarded_task = 64,
} ompt_cancel_flag_t;

typedef enum ompt_frame_flag_t
{
    ompt_frame_runtime = 0,
    ompt_frame_application = 1,
    ompt_frame_cfa = 16,
    ompt_frame_framepointer = 32,
    ompt_frame_stackaddress = 48,
} ompt_frame_flag_t;

typedef enum ompt_set_result_t
{
    ompt_set_error = 0,
    ompt_set_never = 1,
    ompt_set_impossible = 2,
    ompt_set_sometimes = 3,
    ompt_set_sometimes_paired = 4,
    ompt_set_always = 5,
} ompt_set_result_t;

typedef enum ompt_callbacks_t
{
    ompt_callback_thread_begin = 1,
    ompt_callback_thread_end = 2,
    ompt_callback_parallel_begin = 3,
    ompt_callback_parallel_end = 4,
    ompt_callback_task_create = 5,
    ompt_callback_task_schedule = 6,
    ompt_callback_implicit_task = 7,
    ompt_callback_target = 8,
    ompt_callback_target_data_op = 9,
    ompt_callback_target_submit = 10,
    ompt_callback_control_tool = 11,
    ompt_callback_device_initialize = 12,
    ompt_callback_device_finalize = 13,
    ompt_callback_device_load = 14,
    ompt_callback_device_unload = 15,
    ompt_callback_sync_region_wait = 16,
    ompt_callback_mutex_released = 17,
    ompt_callback_dependences = 18,
    ompt_callback_task_dependence = 19,
    ompt_callback_work = 20,
    ompt_callback_master = 21,
    ompt_callback_masked = 21,
    ompt_callback_target_map = 22,
    ompt_callback_sync_region = 23,
    ompt_callback_lock_init = 24,
    ompt_callback_lock_destroy = 25,
    ompt_callback_mutex_acquire = 26,
    ompt_callback_mutex_acquired = 27,
    ompt_callback_nest_lock = 28,
    ompt_callback_flush = 29,
    ompt_callback_cancel = 30,
    ompt_callback_reduction = 31,
    ompt_callback_dispatch = 32,
    ompt_callback_target_emi = 33,
    ompt_callback_target_data_op_emi = 34,
    ompt_callback_target_submit_emi = 35,
    ompt_callback_target_map_emi = 36,
    ompt_callback_error = 37,
} ompt_callbacks_t;

typedef enum kmp_mutex_impl_t
{
    kmp_mutex_impl_none = 0,
    kmp_mutex_impl_spin = 1,
    kmp_mutex_impl_queuing = 2,
    kmp_mutex_impl_speculative = 3,
} kmp_mutex_impl_t;

typedef enum ompt_record_t
{
    ompt_record_ompt = 1,
    ompt_record_native = 2,
    ompt_record_invalid = 3,
} ompt_record_t;

typedef enum ompt_record_native_t
{
    ompt_record_native_info = 1,
    ompt_record_native_event = 2,
} ompt_record_native_t;

typedef enum ompt_native_mon_flag_t
{
    ompt_native_data_motion_explicit = 1,
    ompt_native_data_motion_implicit = 2,
    ompt_native_kernel_invocation = 4,
    ompt_native_kernel_execution = 8,
    ompt_native_driver = 16,
    ompt_native_runtime = 32,
    ompt_native_overhead = 64,
    ompt_native_idleness = 128,
} ompt_native_mon_flag_t;

typedef enum ompt_target_map_flag_t
{
    ompt_target_map_flag_to = 1,
    ompt_target_map_flag_from = 2,
    ompt_target_map_flag_alloc = 4,
    ompt_target_map_flag_release = 8,
    ompt_target_map_flag_delete = 16,
    ompt_target_map_flag_implicit = 32,
} ompt_target_map_flag_t;

typedef enum ompt_state_t
{
    ompt_state_work_serial = 0,
    ompt_state_work_parallel = 1,
    ompt_state_work_reduction = 2,
    ompt_state_wait_barrier = 16,
    ompt_state_wait_barrier_implicit_parallel = 17,
    ompt_state_wait_barrier_implicit_workshare = 18,
    ompt_state_wait_barrier_implicit = 19,
    ompt_state_wait_barrier_explicit = 20,
    ompt_state_wait_barrier_implementation = 21,
    ompt_state_wait_barrier_teams = 22,
    ompt_state_wait_taskwait = 32,
    ompt_state_wait_taskgroup = 33,
    ompt_state_wait_mutex = 64,
    ompt_state_wait_lock = 65,
    ompt_state_wait_critical = 66,
    ompt_state_wait_atomic = 67,
    ompt_state_wait_ordered = 68,
    ompt_state_wait_target = 128,
    ompt_state_wait_target_map = 129,
    ompt_state_wait_target_update = 130,
    ompt_state_idle = 256,
    ompt_state_overhead = 257,
    ompt_state_undefined = 258,
} ompt_state_t;

typedef enum ompd_scope_t
{
    ompd_scope_global = 1,
    ompd_scope_address_space = 2,
    ompd_scope_thread = 3,
    ompd_scope_parallel = 4,
    ompd_scope_implicit_task = 5,
    ompd_scope_task = 6,
} ompd_scope_t;

typedef enum ompd_rc_t
{
    ompd_rc_ok = 0,
    ompd_rc_unavailable = 1,
    ompd_rc_stale_handle = 2,
    ompd_rc_bad_input = 3,
    ompd_rc_error = 4,
    ompd_rc_unsupported = 5,
    ompd_rc_needs_state_tracking = 6,
    ompd_rc_incompatible = 7,
    ompd_rc_device_read_error = 8,
    ompd_rc_device_write_error = 9,
    ompd_rc_nomem = 10,
    ompd_rc_incomplete = 11,
    ompd_rc_callback_error = 12,
} ompd_rc_t;

typedef uint64_t ompt_id_t;
typedef uint64_t ompt_wait_id_t;
typedef void ompt_device_t;

/* What a tool may keep with a thread, a task, a parallel region. */
typedef union ompt_data_t
{
    uint64_t value;
    void* ptr;
} ompt_data_t;

typedef struct ompt_frame_t
{
    ompt_data_t exit_frame;
    ompt_data_t enter_frame;
    int exit_frame_flags; /* ompt_frame_flag_t */
    int enter_frame_flags;
} ompt_frame_t;

typedef struct ompt_dependence_t
{
    ompt_data_t variable;
    ompt_dependence_type_t dependence_type;
} ompt_dependence_t;

typedef void (*ompt_callback_t)(void);
typedef void (*ompt_interface_fn_t)(void);
typedef ompt_interface_fn_t (*ompt_function_lookup_t)(const char* interface_function_name);
typedef int (*ompt_initialize_t)(ompt_function_lookup_t lookup, int initial_device_num, ompt_data_t* tool_data);
typedef void (*ompt_finalize_t)(ompt_data_t* tool_data);
typedef ompt_set_result_t (*ompt_set_callback_t)(ompt_callbacks_t event, ompt_callback_t callback);

typedef struct ompt_start_tool_result_t
{
    ompt_initialize_t initialize;
    ompt_finalize_t finalize;
    ompt_data_t tool_data;
} ompt_start_tool_result_t;

/* The runtime's own functions. */
typedef int (*ompt_enumerate_states_t)(int current_state, int* next_state, const char** next_state_name);
typedef int (*ompt_enumerate_mutex_impls_t)(int current_impl, int* next_impl, const char** next_impl_name);
typedef ompt_data_t* (*ompt_get_thread_data_t)(void);
typedef int (*ompt_get_num_places_t)(void);
typedef int (*ompt_get_place_proc_ids_t)(int place_num, int ids_size, int* ids);
typedef int (*ompt_get_place_num_t)(void);
typedef int (*ompt_get_partition_place_nums_t)(int place_nums_size, int* place_nums);
typedef int (*ompt_get_proc_id_t)(void);
typedef int (*ompt_get_state_t)(ompt_wait_id_t* wait_id);
typedef int (*ompt_get_parallel_info_t)(int ancestor_level, ompt_data_t** parallel_data, int* team_size);
typedef int (*ompt_get_task_info_t)(int ancestor_level, int* flags, ompt_data_t** task_data, ompt_frame_t** task_frame, ompt_data_t** parallel_data, int* thread_num);
typedef int (*ompt_get_task_memory_t)(void** addr, size_t* size, int block);
typedef int (*ompt_get_num_devices_t)(void);
typedef int (*ompt_get_num_procs_t)(void);
typedef int (*ompt_get_target_info_t)(uint64_t* device_num, ompt_id_t* target_id, ompt_id_t* host_op_id);
typedef uint64_t (*ompt_get_unique_id_t)(void);

#ifdef __cplusplus
}
#endif

#endif
#endif
