/* rocprofiler-sdk for C++: records, agents and names by cereal, into archives and back. */
#ifndef ROCPROFILER_SDK_CXX_SERIALIZATION_HPP_
#define ROCPROFILER_SDK_CXX_SERIALIZATION_HPP_

#include <rocprofiler-sdk/cxx/serialization/load.hpp>
#include <rocprofiler-sdk/cxx/serialization/save.hpp>

#endif
