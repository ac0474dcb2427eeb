/* rocprofiler-sdk for C++: comparisons of ids, agents, sizes and versions, for maps and sorted containers. */
#ifndef ROCPROFILER_SDK_CXX_OPERATORS_HPP_
#define ROCPROFILER_SDK_CXX_OPERATORS_HPP_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/internal_threading.h>
#include <cstdint>
#include <tuple>

namespace rocprofiler
{
namespace sdk
{
namespace operators
{
/* For types that are one number, named `handle`. */
template <typename Id>
constexpr bool equal(Id left, Id right)
{
    static_assert(sizeof(Id) == sizeof(uint64_t), "a type that is one handle");
    return left.handle == right.handle;
}

template <typename Id>
constexpr bool less(Id left, Id right)
{
    static_assert(sizeof(Id) == sizeof(uint64_t), "a type that is one handle");
    return left.handle < right.handle;
}

/* An agent is its id. */
inline bool equal(const rocprofiler_agent_v0_t& left, const rocprofiler_agent_v0_t& right)
{
    return left.id.handle == right.id.handle;
}

inline bool less(const rocprofiler_agent_v0_t& left, const rocprofiler_agent_v0_t& right)
{
    return left.id.handle < right.id.handle;
}

/* Sizes are ordered by volume, those of one volume by x, y and z. */
inline std::tuple<uint64_t, uint32_t, uint32_t, uint32_t> size_key(const rocprofiler_dim3_t& of)
{
    return std::make_tuple(static_cast<uint64_t>(of.x) * of.y * of.z, of.x, of.y, of.z);
}

inline bool equal(const rocprofiler_dim3_t& left, const rocprofiler_dim3_t& right)
{
    return size_key(left) == size_key(right);
}

inline bool less(const rocprofiler_dim3_t& left, const rocprofiler_dim3_t& right)
{
    return size_key(left) < size_key(right);
}

/* Versions are ordered by major, minor and patch. */
inline std::tuple<uint32_t, uint32_t, uint32_t> version_key(const rocprofiler_version_triplet_t& of)
{
    return std::make_tuple(of.major, of.minor, of.patch);
}

inline bool equal(const rocprofiler_version_triplet_t& left, const rocprofiler_version_triplet_t& right)
{
    return version_key(left) == version_key(right);
}

inline bool less(const rocprofiler_version_triplet_t& left, const rocprofiler_version_triplet_t& right)
{
    return version_key(left) < version_key(right);
}
} // namespace operators
} // namespace sdk
} // namespace rocprofiler

#define ROCPROFILER_SDK_CXX_COMPARED(type)                                                                             \
    inline bool operator==(const type& left, const type& right)                                                        \
    {                                                                                                                  \
        return ::rocprofiler::sdk::operators::equal(left, right);                                                      \
    }                                                                                                                  \
    inline bool operator<(const type& left, const type& right)                                                         \
    {                                                                                                                  \
        return ::rocprofiler::sdk::operators::less(left, right);                                                       \
    }                                                                                                                  \
    inline bool operator!=(const type& left, const type& right) { return !(left == right); }                           \
    inline bool operator>(const type& left, const type& right) { return right < left; }                                \
    inline bool operator<=(const type& left, const type& right) { return !(right < left); }                            \
    inline bool operator>=(const type& left, const type& right) { return !(left < right); }

ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_context_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_address_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_agent_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_queue_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_stream_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_buffer_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_counter_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_counter_config_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_callback_thread_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_agent_v0_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_dim3_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_version_triplet_t)
ROCPROFILER_SDK_CXX_COMPARED(hsa_agent_t)

/* Without HSA's own headers these types are not there. */
#if defined(ROCPROFILER_HAVE_HSA_TYPES)
ROCPROFILER_SDK_CXX_COMPARED(hsa_signal_t)
ROCPROFILER_SDK_CXX_COMPARED(hsa_executable_t)
ROCPROFILER_SDK_CXX_COMPARED(hsa_region_t)
ROCPROFILER_SDK_CXX_COMPARED(hsa_amd_memory_pool_t)
#endif

#undef ROCPROFILER_SDK_CXX_COMPARED

#endif
