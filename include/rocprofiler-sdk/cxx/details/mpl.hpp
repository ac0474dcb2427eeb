/* rocprofiler-sdk for C++: questions about types that the other headers and tools ask. */
#ifndef ROCPROFILER_SDK_CXX_DETAILS_MPL_HPP_
#define ROCPROFILER_SDK_CXX_DETAILS_MPL_HPP_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace rocprofiler
{
namespace sdk
{
namespace mpl
{
/* A type without references, qualifiers and array bounds. */
template <typename T>
struct unqualified_identity
{
    using type = std::remove_cv_t<std::decay_t<T>>;
};

template <typename T>
using unqualified_identity_t = typename unqualified_identity<T>::type;

template <typename T, typename U>
struct is_same_unqualified_identity : std::is_same<unqualified_identity_t<T>, unqualified_identity_t<U>>
{
};

/* The kinds of text that names can be kept in. */
template <typename T>
struct string_support
{
    using type = T;
    using return_type = void;
    static constexpr bool value = false;
    static constexpr void default_value() {}
};

namespace impl
{
template <typename Text>
struct text_support
{
    using type = Text;
    using return_type = Text;
    static constexpr bool value = true;
    static type default_value() { return type{}; }
    type operator()(const char* text) const { return type{text}; }
};

template <typename T>
struct is_string_type : std::false_type
{
};
template <>
struct is_string_type<std::string> : std::true_type
{
};
template <>
struct is_string_type<std::string_view> : std::true_type
{
};
template <>
struct is_string_type<const char*> : std::true_type
{
};
template <>
struct is_string_type<char*> : std::true_type
{
};
} // namespace impl

template <>
struct string_support<const char*> : impl::text_support<const char*>
{
};
template <>
struct string_support<std::string_view> : impl::text_support<std::string_view>
{
};
template <>
struct string_support<std::string> : impl::text_support<std::string>
{
};

template <typename T>
struct is_string_type : impl::is_string_type<unqualified_identity_t<T>>
{
};

namespace impl
{
/* Whether `Wanted<T>` is a type. */
template <template <typename> class Wanted, typename T, typename = void>
struct detected : std::false_type
{
};
template <template <typename> class Wanted, typename T>
struct detected<Wanted, T, std::void_t<Wanted<T>>> : std::true_type
{
};

template <template <typename> class Wanted, typename T>
struct answer
{
    static constexpr bool value = detected<Wanted, T>::value;
    constexpr bool operator()() const { return value; }
};

template <typename T>
using traits_of = typename T::traits_type;
template <typename T>
using value_of = typename T::value_type;
template <typename T>
using key_of = typename T::key_type;
template <typename T>
using mapped_of = typename T::mapped_type;
template <typename T>
using emptiness_of = decltype(std::declval<T>().empty());
template <typename T>
using written = decltype(std::declval<std::ostream&>() << std::declval<T>());
template <typename T>
using ends_of = decltype(std::begin(std::declval<T>()), std::end(std::declval<T>()));
} // namespace impl

/* The argument only chooses the function, as in has_key_type<T>(0). */
template <typename T>
constexpr bool has_traits(long)
{
    return impl::detected<impl::traits_of, T>::value;
}
template <typename T>
constexpr bool has_value_type(long)
{
    return impl::detected<impl::value_of, T>::value;
}
template <typename T>
constexpr bool has_key_type(long)
{
    return impl::detected<impl::key_of, T>::value;
}
template <typename T>
constexpr bool has_mapped_type(long)
{
    return impl::detected<impl::mapped_of, T>::value;
}

template <typename T>
struct has_empty_member_function : impl::answer<impl::emptiness_of, T>
{
};
template <typename T>
struct can_stringify : impl::answer<impl::written, T>
{
};
template <typename T>
struct is_iterable : impl::answer<impl::ends_of, T>
{
};
template <typename T>
using supports_ostream = can_stringify<T>;

/* Whether a container or a text is empty; anything else never is. */
template <typename T>
bool is_empty(T&& what)
{
    using bare = unqualified_identity_t<T>;
    if constexpr (has_empty_member_function<bare>::value)
        return what.empty();
    else if constexpr (is_string_type<bare>::value)
        return std::string_view{what}.empty();
    else
        return (static_cast<void>(what), false);
}

namespace impl
{
template <typename Container, typename... Values>
auto emplace(int, Container& into, Values&&... values) -> decltype(into.emplace_back(std::forward<Values>(values)...))
{
    return into.emplace_back(std::forward<Values>(values)...);
}
template <typename Container, typename... Values>
auto emplace(long, Container& into, Values&&... values) -> decltype(into.emplace(std::forward<Values>(values)...))
{
    return into.emplace(std::forward<Values>(values)...);
}
template <typename Container, typename Count>
auto reserve(int, Container& of, Count count) -> decltype(of.reserve(count), bool())
{
    of.reserve(count);
    return true;
}
template <typename Container, typename Count>
bool reserve(long, Container&, Count)
{
    return false;
}
} // namespace impl

/* Adds to a container: at its end, if it has one. */
template <typename Container, typename... Values>
auto emplace(Container& into, Values&&... values)
{
    return impl::emplace(0, into, std::forward<Values>(values)...);
}

/* Makes room in a container. False: it is of a kind that does not do that. */
template <typename Container, typename Count>
bool reserve(Container& of, Count count)
{
    return impl::reserve(0, of, count);
}

/* For static_assert in branches that are not to be taken. */
template <typename T>
struct assert_false
{
    static constexpr bool value = false;
};
} // namespace mpl
} // namespace sdk
} // namespace rocprofiler

#endif
