// A stand-in for cereal (https://uscilab.github.io/cereal), which no machine has to have for a test: pairs of a name and a
// value, an archive that makes a tree of them, and one that reads it. Names match cereal's.
#pragma once

#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cereal
{
template <typename T>
struct NameValuePair
{
    const char* name;
    T value; // a reference, where the value has a place of its own
};

template <typename T>
NameValuePair<T> make_nvp(const char* name, T&& value)
{
    return {name, std::forward<T>(value)};
}

struct Node
{
    std::string text;                                // of a number or a string
    std::vector<std::pair<std::string, Node>> nodes; // of a struct; of a list, without names
    bool is_list = false;

    const Node& at(const std::string& name) const
    {
        for (const auto& one : nodes)
            if (one.first == name) return one.second;
        throw std::runtime_error("there is no " + name);
    }
    std::string words() const
    {
        if (nodes.empty() && !is_list) return text;
        std::string out = is_list ? "[" : "{";
        for (const auto& one : nodes)
            out += (out.size() > 1 ? "," : "") + one.first + (is_list ? "" : "=") + one.second.words();
        return out + (is_list ? "]" : "}");
    }
};

template <typename T>
struct is_vector : std::false_type
{
};
template <typename T>
struct is_vector<std::vector<T>> : std::true_type
{
};

class TreeOutputArchive
{
public:
    explicit TreeOutputArchive(Node& into) : node(into) {}

    template <typename T>
    void operator()(const NameValuePair<T>& pair)
    {
        node.nodes.emplace_back(node.is_list ? "" : pair.name, Node{});
        put(node.nodes.back().second, pair.value);
    }
    void makeArray() { node.is_list = true; }

private:
    template <typename T>
    static void put(Node& into, const T& value)
    {
        if constexpr (std::is_enum_v<T>) {
            put(into, static_cast<std::underlying_type_t<T>>(value));
        } else if constexpr (std::is_arithmetic_v<T>) {
            std::ostringstream text;
            text << +value;
            into.text = text.str();
        } else if constexpr (std::is_same_v<T, std::string>) {
            into.text = value;
        } else if constexpr (is_vector<T>::value) {
            into.is_list = true;
            for (const auto& one : value) {
                into.nodes.emplace_back();
                put(into.nodes.back().second, one);
            }
        } else {
            TreeOutputArchive inner(into);
            save(inner, value);
        }
    }

    Node& node;
};

class TreeInputArchive
{
public:
    explicit TreeInputArchive(const Node& from) : node(from) {}

    template <typename T>
    void operator()(NameValuePair<T>&& pair)
    {
        get(node.at(pair.name), pair.value);
    }

private:
    template <typename T>
    static void get(const Node& from, T& value)
    {
        if constexpr (std::is_enum_v<T>) {
            value = static_cast<T>(std::stoll(from.text));
        } else if constexpr (std::is_arithmetic_v<T>) {
            value = static_cast<T>(std::is_signed_v<T> ? std::stoll(from.text) : static_cast<long long>(std::stoull(from.text)));
        } else if constexpr (std::is_same_v<T, std::string>) {
            value = from.text;
        } else if constexpr (is_vector<T>::value) {
            value.resize(from.nodes.size());
            for (size_t n = 0; n < value.size(); ++n)
                get(from.nodes[n].second, value[n]);
        } else {
            TreeInputArchive inner(from);
            load(inner, value);
        }
    }

    const Node& node;
};
} // namespace cereal
