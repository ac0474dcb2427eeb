/* rocprofiler-sdk: sampling of program counters. No agent has it here: the functions answer with what the machine lacks.
 */
#ifndef ROCPROFILER_SDK_PC_SAMPLING_H_
#define ROCPROFILER_SDK_PC_SAMPLING_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>

ROCPROFILER_EXTERN_C_INIT

/* Properties of a configuration, as bits. */
typedef enum rocprofiler_pc_sampling_configuration_flags_t
{
    ROCPROFILER_PC_SAMPLING_CONFIGURATION_FLAGS_NONE = 0,
    ROCPROFILER_PC_SAMPLING_CONFIGURATION_FLAGS_INTERVAL_POW2 = 1,
    ROCPROFILER_PC_SAMPLING_CONFIGURATION_FLAGS_LAST = 2
} rocprofiler_pc_sampling_configuration_flags_t;

/* What a wave issued. */
typedef enum rocprofiler_pc_sampling_instruction_type_t
{
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_NONE = 0,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_VALU = 1,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_MATRIX = 2,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_SCALAR = 3,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_TEX = 4,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_LDS = 5,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_LDS_DIRECT = 6,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_FLAT = 7,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_EXPORT = 8,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_MESSAGE = 9,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_BARRIER = 10,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_BRANCH_NOT_TAKEN = 11,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_BRANCH_TAKEN = 12,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_JUMP = 13,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_OTHER = 14,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_NO_INST = 15,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_DUAL_VALU = 16,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_LAST = 17
} rocprofiler_pc_sampling_instruction_type_t;

/* Why a wave did not issue. */
typedef enum rocprofiler_pc_sampling_instruction_not_issued_reason_t
{
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NONE = 0,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NO_INSTRUCTION_AVAILABLE = 1,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_ALU_DEPENDENCY = 2,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_WAITCNT = 3,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_INTERNAL_INSTRUCTION = 4,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_BARRIER_WAIT = 5,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_ARBITER_NOT_WIN = 6,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_ARBITER_WIN_EX_STALL = 7,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_OTHER_WAIT = 8,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_SLEEP_WAIT = 9,
    ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_LAST = 10
} rocprofiler_pc_sampling_instruction_not_issued_reason_t;

/* What an agent can do. */
typedef struct rocprofiler_pc_sampling_configuration_t
{
    uint64_t size;
    rocprofiler_pc_sampling_method_t method;
    rocprofiler_pc_sampling_unit_t unit;
    size_t min_interval;
    size_t max_interval;
    uint64_t flags;
} rocprofiler_pc_sampling_configuration_t;

/* Where on the device a wave ran. */
typedef struct rocprofiler_pc_sampling_hw_id_v0_t
{
    uint64_t chiplet : 6;
    uint64_t wave_id : 7;
    uint64_t simd_id : 2;
    uint64_t pipe_id : 4;
    uint64_t cu_or_wgp_id : 4;
    uint64_t shader_array_id : 1;
    uint64_t shader_engine_id : 5;
    uint64_t workgroup_id : 7;
    uint64_t vm_id : 6;
    uint64_t queue_id : 4;
    uint64_t microengine_id : 2;
    uint64_t reserved0 : 16;
} rocprofiler_pc_sampling_hw_id_v0_t;

/* A program counter: code object and offset in it. */
typedef struct rocprofiler_pc_t
{
    uint64_t code_object_id;
    uint64_t code_object_offset;
} rocprofiler_pc_t;

/* A sample of the method HOST_TRAP. */
typedef struct rocprofiler_pc_sampling_record_host_trap_v0_t
{
    uint64_t size;
    rocprofiler_pc_sampling_hw_id_v0_t hw_id;
    rocprofiler_pc_t pc;
    uint64_t exec_mask;
    uint64_t timestamp;
    uint64_t dispatch_id;
    rocprofiler_async_correlation_id_t correlation_id;
    rocprofiler_dim3_t workgroup_id;
    uint32_t wave_in_group : 8;
    uint32_t reserved0 : 24;
} rocprofiler_pc_sampling_record_host_trap_v0_t;

/* What a stochastic sample holds. */
typedef struct rocprofiler_pc_sampling_record_stochastic_header_t
{
    uint8_t has_memory_counter : 1;
    uint8_t reserved_type : 7;
} rocprofiler_pc_sampling_record_stochastic_header_t;

/* Why a wave did not issue, and what the arbiter did. */
typedef struct rocprofiler_pc_sampling_snapshot_v0_t
{
    uint32_t reason_not_issued : 4;
    uint32_t reserved0 : 1;
    uint32_t arb_state_issue_valu : 1;
    uint32_t arb_state_issue_matrix : 1;
    uint32_t arb_state_issue_lds : 1;
    uint32_t arb_state_issue_lds_direct : 1;
    uint32_t arb_state_issue_scalar : 1;
    uint32_t arb_state_issue_vmem_tex : 1;
    uint32_t arb_state_issue_flat : 1;
    uint32_t arb_state_issue_exp : 1;
    uint32_t arb_state_issue_misc : 1;
    uint32_t arb_state_issue_brmsg : 1;
    uint32_t arb_state_issue_reserved : 1;
    uint32_t arb_state_stall_valu : 1;
    uint32_t arb_state_stall_matrix : 1;
    uint32_t arb_state_stall_lds : 1;
    uint32_t arb_state_stall_lds_direct : 1;
    uint32_t arb_state_stall_scalar : 1;
    uint32_t arb_state_stall_vmem_tex : 1;
    uint32_t arb_state_stall_flat : 1;
    uint32_t arb_state_stall_exp : 1;
    uint32_t arb_state_stall_misc : 1;
    uint32_t arb_state_stall_brmsg : 1;
    uint32_t arb_state_state_reserved : 1;
    uint32_t dual_issue_valu : 1;
    uint32_t reserved1 : 1;
    uint32_t reserved2 : 3;
} rocprofiler_pc_sampling_snapshot_v0_t;

/* Memory operations under way. */
typedef struct rocprofiler_pc_sampling_memory_counters_t
{
    uint32_t load_cnt : 6;
    uint32_t store_cnt : 6;
    uint32_t bvh_cnt : 3;
    uint32_t sample_cnt : 6;
    uint32_t ds_cnt : 6;
    uint32_t km_cnt : 5;
} rocprofiler_pc_sampling_memory_counters_t;

/* A sample of the method STOCHASTIC. */
typedef struct rocprofiler_pc_sampling_record_stochastic_v0_t
{
    uint64_t size;
    rocprofiler_pc_sampling_record_stochastic_header_t flags;
    uint8_t wave_in_group;
    uint8_t wave_issued : 1;
    uint8_t inst_type : 5;
    uint8_t reserved : 2;
    rocprofiler_pc_sampling_hw_id_v0_t hw_id;
    rocprofiler_pc_t pc;
    uint64_t exec_mask;
    rocprofiler_dim3_t workgroup_id;
    uint32_t wave_count;
    uint64_t timestamp;
    uint64_t dispatch_id;
    rocprofiler_async_correlation_id_t correlation_id;
    rocprofiler_pc_sampling_snapshot_v0_t snapshot;
    rocprofiler_pc_sampling_memory_counters_t memory_counters;
} rocprofiler_pc_sampling_record_stochastic_v0_t;

/* A sample that cannot be used. */
typedef struct rocprofiler_pc_sampling_record_invalid_t
{
    uint64_t size;
} rocprofiler_pc_sampling_record_invalid_t;

/* Told of what an agent can do. */
typedef rocprofiler_status_t (*rocprofiler_available_pc_sampling_configurations_cb_t)(
    const rocprofiler_pc_sampling_configuration_t* configs,
    size_t num_config,
    void* user_data);

/* Adds sampling on an agent to a context. */
rocprofiler_status_t
rocprofiler_configure_pc_sampling_service(rocprofiler_context_id_t context_id,
                                          rocprofiler_agent_id_t agent_id,
                                          rocprofiler_pc_sampling_method_t method,
                                          rocprofiler_pc_sampling_unit_t unit,
                                          uint64_t interval,
                                          rocprofiler_buffer_id_t buffer_id,
                                          int flags) ROCPROFILER_API;

/* Tells of what an agent can do. */
rocprofiler_status_t
rocprofiler_query_pc_sampling_agent_configurations(rocprofiler_agent_id_t agent_id,
                                                   rocprofiler_available_pc_sampling_configurations_cb_t cb,
                                                   void* user_data) ROCPROFILER_API;

/* A name. */
const char*
rocprofiler_get_pc_sampling_instruction_type_name(rocprofiler_pc_sampling_instruction_type_t instruction_type) ROCPROFILER_API;

/* A name. */
const char*
rocprofiler_get_pc_sampling_instruction_not_issued_reason_name(rocprofiler_pc_sampling_instruction_not_issued_reason_t not_issued_reason) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
