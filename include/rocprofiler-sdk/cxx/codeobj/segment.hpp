/* rocprofiler-sdk for C++: which code object an address is in. */
#ifndef ROCPROFILER_SDK_CXX_CODEOBJ_SEGMENT_HPP_
#define ROCPROFILER_SDK_CXX_CODEOBJ_SEGMENT_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

namespace rocprofiler
{
namespace sdk
{
namespace codeobj
{
namespace segment
{
/* What a code object is named by: its code_object_id. */
using marker_id_t = size_t;

/* `size` bytes from `addr`. A range of no bytes stands for the one address. */
struct address_range_t
{
    uint64_t addr{0};
    uint64_t size{0};
    marker_id_t id{0};

    /* The last address that is in it. */
    uint64_t last() const { return addr + (size > 1 ? size - 1 : 0); }

    /* Ranges that have an address in common are one to containers: so an address finds its range. */
    bool operator==(const address_range_t& other) const { return addr <= other.last() && other.addr <= last(); }
    bool operator<(const address_range_t& other) const { return last() < other.addr; }

    bool inrange(uint64_t address) const { return address >= addr && address - addr < size; }
};

/* The ranges of code objects that are loaded. They do not overlap. Not for several threads at once. */
class CodeobjTableTranslator : public std::set<address_range_t>
{
public:
    /* The range of an address. Throws std::out_of_range if there is none. */
    address_range_t find_codeobj_in_range(uint64_t address)
    {
        if (!latest.inrange(address)) {
            const auto found = find(address_range_t{address, 0, 0});
            if (found == end()) throw std::out_of_range("no code object is loaded at this address");
            latest = *found;
        }
        return latest;
    }

    void clear_cache() { latest = address_range_t{}; }

    /* Removes the range that has an address. False: there is none. */
    bool remove(const address_range_t& range)
    {
        clear_cache();
        return erase(range) != 0;
    }
    bool remove(uint64_t address) { return remove(address_range_t{address, 0, 0}); }

private:
    address_range_t latest{};
};
} // namespace segment
} // namespace codeobj
} // namespace sdk
} // namespace rocprofiler

#endif
