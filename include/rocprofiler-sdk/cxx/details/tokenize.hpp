/* rocprofiler-sdk for C++: parts of texts. */
#ifndef ROCPROFILER_SDK_CXX_DETAILS_TOKENIZE_HPP_
#define ROCPROFILER_SDK_CXX_DETAILS_TOKENIZE_HPP_

#include <string>
#include <string_view>
#include <vector>

namespace rocprofiler
{
namespace sdk
{
namespace parse
{
/* The parts of a text between any of these characters, without empty ones. */
inline std::vector<std::string> tokenize(std::string_view text, std::string_view between = "\"',;: ")
{
    std::vector<std::string> all;
    size_t from = text.find_first_not_of(between);
    while(from != std::string_view::npos)
    {
        const size_t to = text.find_first_of(between, from);
        all.emplace_back(text.substr(from, to == std::string_view::npos ? to : to - from));
        from = text.find_first_not_of(between, to);
    }
    return all;
}

/* A text without these characters at both ends. */
inline std::string strip(std::string text, std::string_view what = " \t\n\v\f\r")
{
    const size_t from = text.find_first_not_of(what);
    if(from == std::string::npos) return std::string{};
    return text.substr(from, text.find_last_not_of(what) + 1 - from);
}
} // namespace parse
} // namespace sdk
} // namespace rocprofiler

#endif
