/* rocprofiler-sdk for C++: numbers as text. */
#ifndef ROCPROFILER_SDK_CXX_UTILITY_HPP_
#define ROCPROFILER_SDK_CXX_UTILITY_HPP_

#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>

namespace rocprofiler
{
namespace sdk
{
namespace utility
{
/* A number in hexadecimal, with 0x before it and zeros up to `width` digits. */
template <typename Number>
std::string as_hex(Number number, size_t width = 0)
{
    std::ostringstream text;
    text << "0x" << std::hex << std::setfill('0') << std::setw(static_cast<int>(width)) << number;
    return text.str();
}
} // namespace utility
} // namespace sdk
} // namespace rocprofiler

#endif
