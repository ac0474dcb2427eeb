// Linked against all packages: the versions that headers and libraries tell.
#include <rocprofiler-register/rocprofiler-register.h>
#include <rocprofiler-sdk-rocattach/rocattach.h>
#include <rocprofiler-sdk/rocprofiler.h>

#include <iostream>

int main()
{
    uint32_t major = 0, minor = 0, patch = 0;
    if(rocprofiler_get_version(&major, &minor, &patch) != ROCPROFILER_STATUS_SUCCESS) return 1;
    if(ROCPROFILER_SDK_COMPUTE_VERSION(major, minor, patch) != ROCPROFILER_VERSION) return 2;
    rocattach_version_triplet_t attach = {};
    if(rocattach_get_version_triplet(&attach) != ROCATTACH_STATUS_SUCCESS) return 3;
    std::cout << "sdk " << ROCPROFILER_VERSION_STRING << " rocattach " << attach.major << '.' << attach.minor << '.' << attach.patch
              << " register " << rocprofiler_register_error_string(ROCP_REG_SUCCESS) << std::endl;
    return 0;
}
