/* rocprofiler-sdk for C++: all is in name_info.hpp; this is another name for it. */
#ifndef ROCPROFILER_SDK_CXX_DETAILS_NAME_INFO_HPP_
#define ROCPROFILER_SDK_CXX_DETAILS_NAME_INFO_HPP_

#include <rocprofiler-sdk/cxx/name_info.hpp>

#endif
