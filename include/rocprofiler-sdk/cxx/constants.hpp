/* rocprofiler-sdk for C++: the agent that is none. */
#ifndef ROCPROFILER_SDK_CXX_CONSTANTS_HPP_
#define ROCPROFILER_SDK_CXX_CONSTANTS_HPP_

#include <rocprofiler-sdk/fwd.h>

namespace rocprofiler
{
namespace sdk
{
constexpr rocprofiler_agent_id_t null_agent_id = {0};
} // namespace sdk
} // namespace rocprofiler

#endif
