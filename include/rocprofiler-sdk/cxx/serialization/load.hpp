/* rocprofiler-sdk for C++: loading by cereal what save.hpp saved: agents, code objects and kernels.
 *
 * Texts and lists that a struct points to are kept for the life of the process: there is nobody to free them.
 */
#ifndef ROCPROFILER_SDK_CXX_SERIALIZATION_LOAD_HPP_
#define ROCPROFILER_SDK_CXX_SERIALIZATION_LOAD_HPP_

#include <rocprofiler-sdk/rocprofiler.h>
#include <cereal/cereal.hpp>
#include <cereal/types/common.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(ROCPROFILER_SDK_CEREAL_NAMESPACE_BEGIN)
#    define ROCPROFILER_SDK_CEREAL_NAMESPACE_BEGIN                                                                     \
        namespace cereal                                                                                               \
        {
#endif
#if !defined(ROCPROFILER_SDK_CEREAL_NAMESPACE_END)
#    define ROCPROFILER_SDK_CEREAL_NAMESPACE_END }
#endif

/* As in save.hpp. */
#define ROCPROFILER_SDK_LOADED(type, ...)                                                                              \
    template <typename Archive>                                                                                        \
    void load(Archive& ar, type& data)                                                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define ROCPROFILER_SDK_FIELD(name) ar(make_nvp(#name, data.name));
#define ROCPROFILER_SDK_BITS(text, name)                                                                               \
    {                                                                                                                  \
        auto bits = data.name;                                                                                         \
        ar(make_nvp(text, bits));                                                                                      \
        data.name = bits;                                                                                              \
    }
#define ROCPROFILER_SDK_TEXT(name)                                                                                     \
    {                                                                                                                  \
        auto* const text = new std::string;                                                                            \
        ar(make_nvp(#name, *text));                                                                                    \
        data.name = text->c_str();                                                                                     \
    }
#define ROCPROFILER_SDK_EACH(text, name, count)                                                                        \
    {                                                                                                                  \
        auto* const list = new std::vector<std::decay_t<decltype(data.name[0])>>;                                      \
        ar(make_nvp(text, *list));                                                                                     \
        data.name = list->data();                                                                                      \
        data.count = static_cast<decltype(data.count)>(list->size());                                                  \
    }

ROCPROFILER_SDK_CEREAL_NAMESPACE_BEGIN

ROCPROFILER_SDK_LOADED(rocprofiler_agent_id_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_LOADED(rocprofiler_address_t,
    ROCPROFILER_SDK_FIELD(handle))

ROCPROFILER_SDK_LOADED(rocprofiler_dim3_t,
    ROCPROFILER_SDK_FIELD(x)
    ROCPROFILER_SDK_FIELD(y)
    ROCPROFILER_SDK_FIELD(z))

ROCPROFILER_SDK_LOADED(rocprofiler_callback_tracing_code_object_load_data_t,
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

ROCPROFILER_SDK_LOADED(rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t,
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

ROCPROFILER_SDK_LOADED(HsaCacheType,
    ROCPROFILER_SDK_BITS("Data", ui32.Data)
    ROCPROFILER_SDK_BITS("Instruction", ui32.Instruction)
    ROCPROFILER_SDK_BITS("CPU", ui32.CPU)
    ROCPROFILER_SDK_BITS("HSACU", ui32.HSACU))

ROCPROFILER_SDK_LOADED(HSA_LINKPROPERTY,
    ROCPROFILER_SDK_BITS("Override", ui32.Override)
    ROCPROFILER_SDK_BITS("NonCoherent", ui32.NonCoherent)
    ROCPROFILER_SDK_BITS("NoAtomics32bit", ui32.NoAtomics32bit)
    ROCPROFILER_SDK_BITS("NoAtomics64bit", ui32.NoAtomics64bit)
    ROCPROFILER_SDK_BITS("NoPeerToPeerDMA", ui32.NoPeerToPeerDMA))

ROCPROFILER_SDK_LOADED(HSA_CAPABILITY,
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

ROCPROFILER_SDK_LOADED(HSA_MEMORYPROPERTY,
    ROCPROFILER_SDK_BITS("HotPluggable", ui32.HotPluggable)
    ROCPROFILER_SDK_BITS("NonVolatile", ui32.NonVolatile))

ROCPROFILER_SDK_LOADED(HSA_ENGINE_ID,
    ROCPROFILER_SDK_BITS("uCode", ui32.uCode)
    ROCPROFILER_SDK_BITS("Major", ui32.Major)
    ROCPROFILER_SDK_BITS("Minor", ui32.Minor)
    ROCPROFILER_SDK_BITS("Stepping", ui32.Stepping))

ROCPROFILER_SDK_LOADED(HSA_ENGINE_VERSION,
    ROCPROFILER_SDK_BITS("uCodeSDMA", uCodeSDMA)
    ROCPROFILER_SDK_BITS("uCodeRes", uCodeRes))

ROCPROFILER_SDK_LOADED(rocprofiler_agent_cache_t,
    ROCPROFILER_SDK_FIELD(processor_id_low)
    ROCPROFILER_SDK_FIELD(size)
    ROCPROFILER_SDK_FIELD(level)
    ROCPROFILER_SDK_FIELD(cache_line_size)
    ROCPROFILER_SDK_FIELD(cache_lines_per_tag)
    ROCPROFILER_SDK_FIELD(association)
    ROCPROFILER_SDK_FIELD(latency)
    ROCPROFILER_SDK_FIELD(type))

ROCPROFILER_SDK_LOADED(rocprofiler_agent_io_link_t,
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

ROCPROFILER_SDK_LOADED(rocprofiler_agent_mem_bank_t,
    ROCPROFILER_SDK_FIELD(heap_type)
    ROCPROFILER_SDK_FIELD(flags)
    ROCPROFILER_SDK_FIELD(width)
    ROCPROFILER_SDK_FIELD(mem_clk_max)
    ROCPROFILER_SDK_FIELD(size_in_bytes))

ROCPROFILER_SDK_LOADED(rocprofiler_agent_v0_t,
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
    ROCPROFILER_SDK_EACH("mem_banks", mem_banks, mem_banks_count)
    ROCPROFILER_SDK_EACH("caches", caches, caches_count)
    ROCPROFILER_SDK_EACH("io_links", io_links, io_links_count))

ROCPROFILER_SDK_CEREAL_NAMESPACE_END

#undef ROCPROFILER_SDK_LOADED
#undef ROCPROFILER_SDK_FIELD
#undef ROCPROFILER_SDK_BITS
#undef ROCPROFILER_SDK_TEXT
#undef ROCPROFILER_SDK_EACH

#endif
