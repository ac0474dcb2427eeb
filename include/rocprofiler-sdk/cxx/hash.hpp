/* rocprofiler-sdk for C++: hashes of ids, for unordered containers. */
#ifndef ROCPROFILER_SDK_CXX_HASH_HPP_
#define ROCPROFILER_SDK_CXX_HASH_HPP_

#include <rocprofiler-sdk/fwd.h>
#include <rocprofiler-sdk/hsa.h>
#include <rocprofiler-sdk/internal_threading.h>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace rocprofiler
{
namespace sdk
{
namespace hash
{
/* Of a type that is one number, named `handle`. */
template <typename Id>
struct handle_hasher
{
    static_assert(sizeof(Id) == sizeof(uint64_t), "a type that is one handle");

    size_t operator()(Id id) const { return id.handle; }
};
} // namespace hash
} // namespace sdk
} // namespace rocprofiler

#define ROCPROFILER_SDK_CXX_HASHED(type)                                                                               \
    template <>                                                                                                        \
    struct hash<type> : ::rocprofiler::sdk::hash::handle_hasher<type>                                                  \
    {                                                                                                                  \
    };

namespace std
{
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_context_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_address_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_agent_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_queue_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_stream_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_buffer_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_counter_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_counter_config_id_t)
ROCPROFILER_SDK_CXX_HASHED(rocprofiler_callback_thread_t)
ROCPROFILER_SDK_CXX_HASHED(hsa_agent_t)
#if defined(ROCPROFILER_HAVE_HSA_TYPES)
ROCPROFILER_SDK_CXX_HASHED(hsa_signal_t)
ROCPROFILER_SDK_CXX_HASHED(hsa_executable_t)
ROCPROFILER_SDK_CXX_HASHED(hsa_region_t)
ROCPROFILER_SDK_CXX_HASHED(hsa_amd_memory_pool_t)
#endif
} // namespace std

#undef ROCPROFILER_SDK_CXX_HASHED

#endif
