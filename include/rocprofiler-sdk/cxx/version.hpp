/* rocprofiler-sdk for C++: a version from its number. */
#ifndef ROCPROFILER_SDK_CXX_VERSION_HPP_
#define ROCPROFILER_SDK_CXX_VERSION_HPP_

#include <rocprofiler-sdk/fwd.h>
#include <cstdint>

namespace rocprofiler
{
namespace sdk
{
namespace version
{
/* Each part of the number counts `Step` of the one below it: with 100, 10203 is 1.2.3. */
template <uint64_t Step = 100>
constexpr rocprofiler_version_triplet_t compute_version_triplet(uint64_t number)
{
    return rocprofiler_version_triplet_t{static_cast<uint32_t>(number / (Step * Step)),
                                         static_cast<uint32_t>(number / Step % Step),
                                         static_cast<uint32_t>(number % Step)};
}
} // namespace version
} // namespace sdk
} // namespace rocprofiler

#endif
