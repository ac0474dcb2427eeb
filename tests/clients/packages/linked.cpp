#include <rocprofiler-sdk-roctx/roctx.h>
#include <rocprofiler-sdk/rocprofiler.h>

int version_of_the_headers();

int main()
{
    unsigned major = 0, minor = 0, patch = 0;
    rocprofiler_get_version(&major, &minor, &patch);
    roctxMark("a mark");
    return ROCPROFILER_SDK_COMPUTE_VERSION(major, minor, patch) == static_cast<unsigned>(version_of_the_headers()) ? 0 : 1;
}
