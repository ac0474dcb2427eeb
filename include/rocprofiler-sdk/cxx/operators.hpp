/* rocprofiler-sdk for C++: comparisons of ids, agents, sizes and versions, for maps and sorted containers. */
#ifndef ROCPROFILER_SDK_CXX_OPERATORS_HPP_
#define ROCPROFILER_SDK_CXX_OPERATORS_HPP_

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/counters.h>
#include <rocprofiler-sdk/experimental/thread-trace/trace_decoder.h>
#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/internal_threading.h>
#include <algorithm>
#include <cstdint>
#include <string_view>
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
/* Addresses are ordered by code object. */
inline std::tuple<uint64_t, uint64_t> address_key(const rocprofiler_thread_trace_decoder_pc_t& of)
{
    return std::make_tuple(of.code_object_id, of.address);
}

inline bool equal(const rocprofiler_thread_trace_decoder_pc_t& left, const rocprofiler_thread_trace_decoder_pc_t& right)
{
    return address_key(left) == address_key(right);
}

inline bool less(const rocprofiler_thread_trace_decoder_pc_t& left, const rocprofiler_thread_trace_decoder_pc_t& right)
{
    return address_key(left) < address_key(right);
}

/* A text, which may be missing. */
inline std::string_view text_key(const char* text)
{
    return text ? std::string_view{text} : std::string_view{};
}

/* Dimensions are ordered by number, size and name. */
inline std::tuple<uint64_t, uint64_t, std::string_view>
dimension_key(const rocprofiler_counter_record_dimension_info_t& of)
{
    return std::make_tuple(static_cast<uint64_t>(of.id), static_cast<uint64_t>(of.instance_size), text_key(of.name));
}

inline bool equal(const rocprofiler_counter_record_dimension_info_t& left,
                  const rocprofiler_counter_record_dimension_info_t& right)
{
    return dimension_key(left) == dimension_key(right);
}

inline bool less(const rocprofiler_counter_record_dimension_info_t& left,
                 const rocprofiler_counter_record_dimension_info_t& right)
{
    return dimension_key(left) < dimension_key(right);
}

/* Positions are ordered by the dimension's name, the number and the size. */
inline std::tuple<std::string_view, uint64_t, uint64_t> position_key(const rocprofiler_counter_dimension_info_t& of)
{
    return std::make_tuple(text_key(of.dimension_name), static_cast<uint64_t>(of.index), of.size);
}

inline bool equal(const rocprofiler_counter_dimension_info_t& left, const rocprofiler_counter_dimension_info_t& right)
{
    return position_key(left) == position_key(right);
}

inline bool less(const rocprofiler_counter_dimension_info_t& left, const rocprofiler_counter_dimension_info_t& right)
{
    return position_key(left) < position_key(right);
}

/* Places of values are ordered by their ids, their counters, and their positions. A missing position comes first. */
inline std::tuple<uint64_t, uint64_t, uint64_t>
place_key(const rocprofiler_counter_record_dimension_instance_info_t& of)
{
    return std::make_tuple(static_cast<uint64_t>(of.instance_id), of.counter_id, of.dimensions_count);
}

inline bool less_position(const rocprofiler_counter_dimension_info_t* left,
                          const rocprofiler_counter_dimension_info_t* right)
{
    return left && right ? less(*left, *right) : right && !left;
}

inline bool less(const rocprofiler_counter_record_dimension_instance_info_t& left,
                 const rocprofiler_counter_record_dimension_instance_info_t& right)
{
    if (place_key(left) != place_key(right))
        return place_key(left) < place_key(right);
    return std::lexicographical_compare(left.dimensions, left.dimensions + left.dimensions_count, right.dimensions,
                                        right.dimensions + right.dimensions_count, less_position);
}

inline bool equal(const rocprofiler_counter_record_dimension_instance_info_t& left,
                  const rocprofiler_counter_record_dimension_instance_info_t& right)
{
    return !less(left, right) && !less(right, left);
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
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_counter_record_dimension_info_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_counter_dimension_info_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_counter_record_dimension_instance_info_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_thread_trace_decoder_id_t)
ROCPROFILER_SDK_CXX_COMPARED(rocprofiler_thread_trace_decoder_pc_t)
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
