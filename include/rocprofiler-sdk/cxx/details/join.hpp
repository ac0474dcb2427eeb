/* rocprofiler-sdk for C++: values as one text, with something between them. */
#ifndef ROCPROFILER_SDK_CXX_DETAILS_JOIN_HPP_
#define ROCPROFILER_SDK_CXX_DETAILS_JOIN_HPP_

#include <array>
#include <cstddef>
#include <ios>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace rocprofiler
{
namespace sdk
{
namespace join
{
/* Whether texts among the values get quotation marks. */
enum
{
    NoQuoteStrings = 0,
    QuoteStrings   = 1
};

/* What is between values, before the first and after the last. */
template <size_t Number>
struct triplet_config
{
    static constexpr auto index() { return Number; }
    std::string_view delimiter = {};
    std::string_view prefix    = {};
    std::string_view suffix    = {};
};

using generic_config = triplet_config<0>;
using array_config   = triplet_config<1>;
using pair_config    = triplet_config<2>;

/* The same for the values, for elements of containers, and for the two of a pair. */
struct config : generic_config
{
    using format_flags_t = std::ios_base::fmtflags;
    using base_type      = generic_config;

    config() = default;
    config(std::string_view between) { delimiter = between; }
    config(const char* between) { delimiter = between; }
    config(generic_config values)
    : generic_config{values}
    {
    }
    config(array_config elements)
    : array{elements}
    {
    }
    config(pair_config two)
    : pair{two}
    {
    }
    config(generic_config values, array_config elements)
    : generic_config{values}, array{elements}
    {
    }
    config(generic_config values, pair_config two)
    : generic_config{values}, pair{two}
    {
    }
    config(array_config elements, pair_config two)
    : array{elements}, pair{two}
    {
    }

    format_flags_t flags = std::ios_base::boolalpha;
    array_config   array = {", ", "[", "]"};
    pair_config    pair  = {", ", "{", "}"};
};

namespace impl
{
template <typename T>
inline constexpr bool is_text = std::is_convertible<const T&, std::string_view>::value;

template <typename T, typename = void>
struct is_container : std::false_type
{
};
template <typename T>
struct is_container<T, std::void_t<decltype(std::declval<const T&>().begin()), decltype(std::declval<const T&>().end())>>
: std::true_type
{
};

template <typename T, typename = void>
struct is_pair : std::false_type
{
};
template <typename T>
struct is_pair<T, std::void_t<decltype(std::declval<const T&>().first), decltype(std::declval<const T&>().second)>>
: std::true_type
{
};

template <int Quotes, typename T>
void put(std::ostream& out, const config& how, const T& value)
{
    if constexpr(is_text<T>)
    {
        const std::string_view text = value;
        if constexpr(Quotes == QuoteStrings)
            out << '"' << text << '"';
        else
            out << text;
    }
    else if constexpr(is_container<T>::value)
    {
        bool is_first = true;
        for(const auto& element : value)
        {
            out << (is_first ? how.array.prefix : how.array.delimiter);
            is_first = false;
            put<Quotes>(out, how, element);
        }
        if(!is_first) out << how.array.suffix;
    }
    else if constexpr(is_pair<T>::value)
    {
        out << how.pair.prefix;
        put<Quotes>(out, how, value.first);
        out << how.pair.delimiter;
        put<Quotes>(out, how, value.second);
        out << how.pair.suffix;
    }
    else
        out << value;
}

/* Adds a value, with the delimiter before it if there is text already. A value without text adds nothing. */
template <int Quotes, typename T>
void add(std::string& all, const config& how, const T& value)
{
    std::ostringstream out;
    out.setf(how.flags);
    put<Quotes>(out, how, value);
    const std::string text = out.str();
    if(text.empty()) return;
    if(!all.empty()) all.append(how.delimiter);
    all.append(text);
}

template <int Quotes, typename... T>
std::string all(const config& how, const T&... values)
{
    std::string text;
    (add<Quotes>(text, how, values), ...);
    if(text.empty()) return text;
    return std::string{how.prefix} + text + std::string{how.suffix};
}
} // namespace impl

/* The values as a text. What comes first is a config, or what is between the values: a character or a text. */
template <int Quotes = NoQuoteStrings, typename How, typename... T>
std::string join(How&& how, T&&... values)
{
    if constexpr(std::is_same<std::decay_t<How>, char>::value)
    {
        const char text[2] = {how, '\0'};
        return impl::all<Quotes>(config{text}, values...);
    }
    else
        return impl::all<Quotes>(config{how}, values...);
}

/* The same with what is between, before and after the values. */
template <int Quotes = NoQuoteStrings, typename... T>
std::string join(std::array<std::string_view, 3>&& how, T&&... values)
{
    config all;
    all.delimiter = how[0];
    all.prefix    = how[1];
    all.suffix    = how[2];
    return impl::all<Quotes>(all, values...);
}

/* A value in quotation marks. */
template <typename T>
std::string quoted(T&& value)
{
    config how;
    how.prefix = "\"";
    how.suffix = "\"";
    return impl::all<NoQuoteStrings>(how, value);
}
} // namespace join
} // namespace sdk
} // namespace rocprofiler

#endif
