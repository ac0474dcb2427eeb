/* rocprofiler-sdk for C++: an array of C, as a pointer and a number of elements, with the members of a container. It does not own its
 * elements. */
#ifndef ROCPROFILER_SDK_CXX_CONTAINER_C_ARRAY_HPP_
#define ROCPROFILER_SDK_CXX_CONTAINER_C_ARRAY_HPP_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace rocprofiler
{
namespace sdk
{
namespace container
{
template <typename T>
struct c_array
{
    using value_type = T;

    c_array(T* first, size_t count)
    : first_{first}, count_{count}
    {
    }

    size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }

    T& operator[](size_t place) { return first_[place]; }
    const T& operator[](size_t place) const { return first_[place]; }

    /* The same, for a place that may be outside. */
    T& at(size_t place)
    {
        check(place);
        return first_[place];
    }
    const T& at(size_t place) const
    {
        check(place);
        return first_[place];
    }

    /* The elements from one place up to another, without the latter. */
    c_array slice(size_t from, size_t to) { return c_array{first_ + from, to - from}; }

    void pop_front()
    {
        first_ += 1;
        count_ -= 1;
    }
    void pop_back() { count_ -= 1; }

    operator T*() const { return first_; }

    T* begin() { return first_; }
    T* end() { return first_ + count_; }
    const T* begin() const { return first_; }
    const T* end() const { return first_ + count_; }

private:
    void check(size_t place) const
    {
        if(place < count_) return;
        throw std::out_of_range{"element " + std::to_string(place) + " of " + std::to_string(count_)};
    }

    T* first_ = nullptr;
    size_t count_ = 0;
};

template <typename T>
c_array<T> make_c_array(T* first, size_t count)
{
    return c_array<T>{first, count};
}
} // namespace container
} // namespace sdk
} // namespace rocprofiler

#endif
