#include <rocprofiler-sdk-roctx/roctx.h>
#include <rocprofiler-sdk/rocprofiler.h>

int version_of_the_headers()
{
    return ROCPROFILER_VERSION;
}
