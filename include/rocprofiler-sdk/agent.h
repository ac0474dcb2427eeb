/* rocprofiler-sdk: the CPUs and GPUs of the machine, as the driver describes them.
 */
#ifndef ROCPROFILER_SDK_AGENT_H_
#define ROCPROFILER_SDK_AGENT_H_

#include <rocprofiler-sdk/defines.h>
#include <rocprofiler-sdk/fwd.h>
#include <stddef.h>
#include <stdint.h>

/* Types of the driver's library. Its own header has them where it is installed. */
#if defined(__has_include)
#    if __has_include(<hsakmt/hsakmttypes.h>)
#        define ROCPROFILER_HAVE_HSAKMT_TYPES 1
#    endif
#endif
#if defined(ROCPROFILER_HAVE_HSAKMT_TYPES)
#    include <hsakmt/hsakmttypes.h>
#else
typedef union
{
    uint32_t Value;
    struct
    {
        unsigned int uCode : 10;
        unsigned int Major : 6;
        unsigned int Minor : 8;
        unsigned int Stepping : 8;
    } ui32;
} HSA_ENGINE_ID;

typedef union
{
    uint32_t Value;
    __extension__ struct
    {
        unsigned int uCodeSDMA : 10;
        unsigned int uCodeRes : 10;
        unsigned int Reserved : 12;
    };
} HSA_ENGINE_VERSION;

typedef union
{
    uint32_t Value;
    struct
    {
        unsigned int HotPluggable : 1;
        unsigned int HSAMMUPresent : 1;
        unsigned int SharedWithGraphics : 1;
        unsigned int QueueSizePowerOfTwo : 1;
        unsigned int QueueSize32bit : 1;
        unsigned int QueueIdleEvent : 1;
        unsigned int VALimit : 1;
        unsigned int WatchPointsSupported : 1;
        unsigned int WatchPointsTotalBits : 4;
        unsigned int DoorbellType : 2;
        unsigned int AQLQueueDoubleMap : 1;
        unsigned int DebugTrapSupported : 1;
        unsigned int WaveLaunchTrapOverrideSupported : 1;
        unsigned int WaveLaunchModeSupported : 1;
        unsigned int PreciseMemoryOperationsSupported : 1;
        unsigned int DEPRECATED_SRAM_EDCSupport : 1;
        unsigned int Mem_EDCSupport : 1;
        unsigned int RASEventNotify : 1;
        unsigned int ASICRevision : 4;
        unsigned int SRAM_EDCSupport : 1;
        unsigned int SVMAPISupported : 1;
        unsigned int CoherentHostAccess : 1;
        unsigned int DebugSupportedFirmware : 1;
        unsigned int PreciseALUOperationsSupported : 1;
        unsigned int PerQueueResetSupported : 1;
    } ui32;
} HSA_CAPABILITY;

typedef union
{
    uint32_t MemoryProperty;
    struct
    {
        unsigned int HotPluggable : 1;
        unsigned int NonVolatile : 1;
        unsigned int Reserved : 30;
    } ui32;
} HSA_MEMORYPROPERTY;

typedef union
{
    uint32_t LinkProperty;
    struct
    {
        unsigned int Override : 1;
        unsigned int NonCoherent : 1;
        unsigned int NoAtomics32bit : 1;
        unsigned int NoAtomics64bit : 1;
        unsigned int NoPeerToPeerDMA : 1;
        unsigned int Reserved : 27;
    } ui32;
} HSA_LINKPROPERTY;

typedef union
{
    uint32_t Value;
    struct
    {
        unsigned int Data : 1;
        unsigned int Instruction : 1;
        unsigned int CPU : 1;
        unsigned int HSACU : 1;
        unsigned int Reserved : 28;
    } ui32;
} HsaCacheType;

typedef enum _HSA_HEAPTYPE
{
    HSA_HEAPTYPE_SYSTEM = 0,
    HSA_HEAPTYPE_FRAME_BUFFER_PUBLIC = 1,
    HSA_HEAPTYPE_FRAME_BUFFER_PRIVATE = 2,
    HSA_HEAPTYPE_GPU_GDS = 3,
    HSA_HEAPTYPE_GPU_LDS = 4,
    HSA_HEAPTYPE_GPU_SCRATCH = 5,
    HSA_HEAPTYPE_DEVICE_SVM = 6,
    HSA_HEAPTYPE_MMIO_REMAP = 7
} HSA_HEAPTYPE;

typedef enum _HSA_IOLINKTYPE
{
    HSA_IOLINKTYPE_UNDEFINED = 0,
    HSA_IOLINKTYPE_HYPERTRANSPORT = 1,
    HSA_IOLINKTYPE_PCIEXPRESS = 2,
    HSA_IOLINKTYPE_AMBA = 3,
    HSA_IOLINKTYPE_MIPI = 4,
    HSA_IOLINK_TYPE_QPI_1_1 = 5,
    HSA_IOLINK_TYPE_RAPID_IO = 8,
    HSA_IOLINK_TYPE_INFINIBAND = 9,
    HSA_IOLINK_TYPE_XGMI = 11,
    HSA_IOLINK_TYPE_XGOP = 12,
    HSA_IOLINK_TYPE_GZ = 13,
    HSA_IOLINK_TYPE_ETHERNET_RDMA = 14,
    HSA_IOLINK_TYPE_RDMA_OTHER = 15,
    HSA_IOLINK_TYPE_OTHER = 16
} HSA_IOLINKTYPE;
#endif

ROCPROFILER_EXTERN_C_INIT

/* Versions of the description of an agent. */
typedef enum rocprofiler_agent_version_t
{
    ROCPROFILER_AGENT_INFO_VERSION_NONE = 0,
    ROCPROFILER_AGENT_INFO_VERSION_0 = 1,
    ROCPROFILER_AGENT_INFO_VERSION_LAST = 2
} rocprofiler_agent_version_t;

/* A cache. */
typedef struct rocprofiler_agent_cache_t
{
    uint64_t processor_id_low;
    uint64_t size;
    uint32_t level;
    uint32_t cache_line_size;
    uint32_t cache_lines_per_tag;
    uint32_t association;
    uint32_t latency;
    HsaCacheType type;
} rocprofiler_agent_cache_t;

/* A link to another node. */
typedef struct rocprofiler_agent_io_link_t
{
    HSA_IOLINKTYPE type;
    uint32_t version_major;
    uint32_t version_minor;
    uint32_t node_from;
    uint32_t node_to;
    uint32_t weight;
    uint32_t min_latency;
    uint32_t max_latency;
    uint32_t min_bandwidth;
    uint32_t max_bandwidth;
    uint32_t recommended_transfer_size;
    HSA_LINKPROPERTY flags;
} rocprofiler_agent_io_link_t;

/* A piece of memory. */
typedef struct rocprofiler_agent_mem_bank_t
{
    HSA_HEAPTYPE heap_type;
    HSA_MEMORYPROPERTY flags;
    uint32_t width;
    uint32_t mem_clk_max;
    uint64_t size_in_bytes;
} rocprofiler_agent_mem_bank_t;

/* Which runtimes see the agent. (The name is spelt so.) */
typedef struct rocprofiler_agent_runtime_visiblity_t
{
    uint32_t hsa : 1;
    uint32_t hip : 1;
    uint32_t rccl : 1;
    uint32_t rocdecode : 1;
    uint32_t reserved : 28;
} rocprofiler_agent_runtime_visiblity_t;

/* An agent. Fields that do not apply to it are 0. Never read past `size`. */
typedef struct rocprofiler_agent_v0_t
{
    uint64_t size;                                            /* bytes of this struct */
    rocprofiler_agent_id_t id;                                /* what records name it by */
    rocprofiler_agent_type_t type;
    uint32_t cpu_cores_count;
    uint32_t simd_count;                                      /* SIMD units of the whole device; 0 for a CPU */
    uint32_t mem_banks_count;
    uint32_t caches_count;
    uint32_t io_links_count;
    uint32_t cpu_core_id_base;
    uint32_t simd_id_base;
    uint32_t max_waves_per_simd;
    uint32_t lds_size_in_kb;                                  /* KiB */
    uint32_t gds_size_in_kb;                                  /* KiB */
    uint32_t num_gws;
    uint32_t wave_front_size;                                 /* work items in a wave */
    uint32_t num_xcc;
    uint32_t cu_count;
    uint32_t array_count;
    uint32_t num_shader_banks;
    uint32_t simd_arrays_per_engine;
    uint32_t cu_per_simd_array;
    uint32_t simd_per_cu;
    uint32_t max_slots_scratch_cu;
    uint32_t gfx_target_version;                              /* 10000 major + 100 minor + stepping: 90402 is gfx942 */
    uint16_t vendor_id;
    uint16_t device_id;
    uint32_t location_id;                                     /* bus, device and function on PCI */
    uint32_t domain;                                          /* of PCI */
    uint32_t drm_render_minor;                                /* of /dev/dri/renderD* */
    uint32_t num_sdma_engines;
    uint32_t num_sdma_xgmi_engines;
    uint32_t num_sdma_queues_per_engine;
    uint32_t num_cp_queues;
    uint32_t max_engine_clk_ccompute;                         /* MHz */
    uint32_t max_engine_clk_fcompute;                         /* MHz */
    HSA_ENGINE_VERSION sdma_fw_version;
    HSA_ENGINE_ID fw_version;
    HSA_CAPABILITY capability;
    uint32_t cu_per_engine;
    uint32_t max_waves_per_cu;
    uint32_t family_id;
    uint32_t workgroup_max_size;
    uint32_t grid_max_size;
    uint64_t local_mem_size;                                  /* bytes */
    uint64_t hive_id;                                         /* devices joined by XGMI have the same */
    uint64_t gpu_id;                                          /* of the driver */
    rocprofiler_dim3_t workgroup_max_dim;
    rocprofiler_dim3_t grid_max_dim;
    const rocprofiler_agent_mem_bank_t* mem_banks;
    const rocprofiler_agent_cache_t* caches;
    const rocprofiler_agent_io_link_t* io_links;
    const char* name;                                         /* such as gfx942 */
    const char* vendor_name;
    const char* product_name;                                 /* what the shop sells */
    const char* model_name;
    uint32_t node_id;                                         /* node of the driver */
    int32_t logical_node_id;                                  /* counted among all agents */
    int32_t logical_node_type_id;                             /* counted among those of its type */
    rocprofiler_agent_runtime_visiblity_t runtime_visibility; /* hidden by variables such as HIP_VISIBLE_DEVICES or not */
    rocprofiler_uuid_t uuid;
} rocprofiler_agent_v0_t;

/* The newest description. */
typedef rocprofiler_agent_v0_t rocprofiler_agent_t;

/* Handed the agents: an array of pointers to the struct of that version. They live as long as the process. */
typedef rocprofiler_status_t (*rocprofiler_query_available_agents_cb_t)(rocprofiler_agent_version_t version,
                                                                        const void** agents,
                                                                        size_t num_agents,
                                                                        void* user_data);

/* Hands over all agents at once. `agent_size`: sizeof(rocprofiler_agent_v0_t) as the caller knows it. */
rocprofiler_status_t
rocprofiler_query_available_agents(rocprofiler_agent_version_t version,
                                   rocprofiler_query_available_agents_cb_t callback,
                                   size_t agent_size,
                                   void* user_data) ROCPROFILER_API;

ROCPROFILER_EXTERN_C_FINI

#endif
