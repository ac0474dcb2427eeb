// A program with marks and ranges, linked against the package of ROCTx.
#include <rocprofiler-sdk-roctx/roctx.h>

#include <iostream>

int main()
{
    roctxMark("begin");
    const int outer = roctxRangePush("outer");
    const int inner = roctxRangePushA("inner");
    const int popped = roctxRangePop();
    const int last = roctxRangePop();
    const roctx_range_id_t range = roctxRangeStart("anywhere");
    roctxRangeStop(range);
    roctx_thread_id_t thread = 0;
    const int told = roctxGetThreadId(&thread);
    std::cout << outer << ' ' << inner << ' ' << popped << ' ' << last << ' ' << (range != 0) << ' ' << (told == 0 && thread != 0)
              << std::endl;
    return 0;
}
