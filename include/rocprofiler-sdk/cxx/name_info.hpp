/* rocprofiler-sdk for C++: the names of all kinds and of their operations, in tables. */
#ifndef ROCPROFILER_SDK_CXX_NAME_INFO_HPP_
#define ROCPROFILER_SDK_CXX_NAME_INFO_HPP_

#include <rocprofiler-sdk/buffer_tracing.h>
#include <rocprofiler-sdk/callback_tracing.h>
#include <rocprofiler-sdk/cxx/details/mpl.hpp>
#include <rocprofiler-sdk/fwd.h>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rocprofiler
{
namespace sdk
{
constexpr auto success_v = ROCPROFILER_STATUS_SUCCESS;

namespace utility
{
/* One kind: its name, and the names of its operations by number. */
template <typename Kind, typename Text = std::string_view>
struct name_info_impl
{
    using support_type = mpl::string_support<Text>;
    using enum_type = Kind;
    using value_type = Text;
    using return_type = typename support_type::return_type;
    using item_type = std::pair<rocprofiler_tracing_operation_t, const value_type*>;
    using item_array_t = std::vector<item_type>;

    static_assert(support_type::value, "names are kept in const char*, std::string_view or std::string");

    /* The kind's name; with a number, an operation's: std::out_of_range if there is none. */
    return_type operator()() const { return name; }
    return_type operator()(size_t operation) const { return operations.at(operation); }
    return_type operator[](size_t operation) const { return operations.at(operation); }

    /* Numbers and names of all operations. */
    item_array_t items() const
    {
        item_array_t all;
        for (const value_type& one : operations)
            all.emplace_back(static_cast<rocprofiler_tracing_operation_t>(all.size()), &one);
        return all;
    }

    Kind value = static_cast<Kind>(0);
    value_type name = {};
    std::vector<value_type> operations = {};
};

/* All kinds, by number. */
template <typename Kind, typename Text = std::string_view>
struct name_info
{
    using value_type = name_info_impl<Kind, Text>;
    using enum_type = Kind;
    using support_type = typename value_type::support_type;
    using return_type = typename value_type::return_type;
    using item_type = const value_type*;
    using item_array_t = std::vector<item_type>;

    /* Sets the name of a kind, or of an operation of it. */
    void emplace(Kind kind, const char* text) { of(kind).name = support_type{}(text); }
    void emplace(Kind kind, rocprofiler_tracing_operation_t operation, const char* text)
    {
        std::vector<Text>& operations = of(kind).operations;
        const size_t at = static_cast<size_t>(operation);
        if (operations.size() <= at) operations.resize(at + 1, support_type::default_value());
        operations[at] = support_type{}(text);
    }

    /* The name of a kind, or of an operation of it: std::out_of_range if there is none. */
    return_type at(Kind kind) const { return kinds.at(static_cast<size_t>(kind)).name; }
    return_type at(Kind kind, rocprofiler_tracing_operation_t operation) const
    {
        return kinds.at(static_cast<size_t>(kind)).operations.at(static_cast<size_t>(operation));
    }

    item_array_t items() const
    {
        item_array_t all;
        for (const value_type& one : kinds)
            all.push_back(&one);
        return all;
    }

    size_t size() const { return kinds.size(); }
    auto begin() { return kinds.begin(); }
    auto begin() const { return kinds.begin(); }
    auto end() { return kinds.end(); }
    auto end() const { return kinds.end(); }
    value_type& operator[](size_t kind) { return kinds.at(kind); }
    const value_type& operator[](size_t kind) const { return kinds.at(kind); }

private:
    value_type& of(Kind kind)
    {
        const size_t at = static_cast<size_t>(kind);
        while (kinds.size() <= at) {
            kinds.emplace_back();
            kinds.back().value = static_cast<Kind>(kinds.size() - 1);
        }
        return kinds[at];
    }

    std::vector<value_type> kinds = {};
};
} // namespace utility

template <typename Text = std::string_view>
using callback_name_info_t = utility::name_info<rocprofiler_callback_tracing_kind_t, Text>;
template <typename Text = std::string_view>
using buffer_name_info_t = utility::name_info<rocprofiler_buffer_tracing_kind_t, Text>;
using callback_name_info = callback_name_info_t<>;
using buffer_name_info = buffer_name_info_t<>;

/* The names of what callbacks can be had for. They live as long as the library is loaded. */
template <typename Text = std::string_view>
callback_name_info_t<Text> get_callback_tracing_names()
{
    using table = callback_name_info_t<Text>;
    table names;
    rocprofiler_iterate_callback_tracing_kinds(
        [](rocprofiler_callback_tracing_kind_t kind, void* into) {
            const char* text = nullptr;
            if (rocprofiler_query_callback_tracing_kind_name(kind, &text, nullptr) == success_v && text != nullptr)
                static_cast<table*>(into)->emplace(kind, text);
            rocprofiler_iterate_callback_tracing_kind_operations(
                kind,
                [](rocprofiler_callback_tracing_kind_t of, rocprofiler_tracing_operation_t operation, void* to) {
                    const char* word = nullptr;
                    if (rocprofiler_query_callback_tracing_kind_operation_name(of, operation, &word, nullptr) == success_v
                        && word != nullptr)
                        static_cast<table*>(to)->emplace(of, operation, word);
                    return 0;
                },
                into);
            return 0;
        },
        &names);
    return names;
}

/* The names of what records can be had of. */
template <typename Text = std::string_view>
buffer_name_info_t<Text> get_buffer_tracing_names()
{
    using table = buffer_name_info_t<Text>;
    table names;
    rocprofiler_iterate_buffer_tracing_kinds(
        [](rocprofiler_buffer_tracing_kind_t kind, void* into) {
            const char* text = nullptr;
            if (rocprofiler_query_buffer_tracing_kind_name(kind, &text, nullptr) == success_v && text != nullptr)
                static_cast<table*>(into)->emplace(kind, text);
            rocprofiler_iterate_buffer_tracing_kind_operations(
                kind,
                [](rocprofiler_buffer_tracing_kind_t of, rocprofiler_tracing_operation_t operation, void* to) {
                    const char* word = nullptr;
                    if (rocprofiler_query_buffer_tracing_kind_operation_name(of, operation, &word, nullptr) == success_v
                        && word != nullptr)
                        static_cast<table*>(to)->emplace(of, operation, word);
                    return 0;
                },
                into);
            return 0;
        },
        &names);
    return names;
}
} // namespace sdk
} // namespace rocprofiler

#endif
