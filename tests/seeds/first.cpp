// The tool of seeds/000: the library and the variables of the first generation.
#include "attachment_tool.hpp"

#include <rocprofiler-sdk/registration.h>

#include <cstdlib>
#include <iostream>
#include <string>

static_assert(sizeof(rocprofiler_tool_configure_result_experimental_t) == 48, "the structure of that document");

int main(int argc, char** argv)
{
    if(argc < 2)
    {
        std::cerr << "usage: " << argv[0] << " PID [MILLISECONDS]\n";
        return 1;
    }
    setenv("ROCP_TOOL_ATTACH", "1", 1);
    setenv("ROCPROF_HIP_API_TRACE", "1", 1);
    setenv("ROCPROF_KERNEL_TRACE", "1", 1);
    setenv("ROCPROF_MEMORY_COPY_TRACE", "1", 1);
    setenv("ROCPROF_OUTPUT_PATH", "./attachment-output", 1);
    setenv("ROCPROF_OUTPUT_FILE_NAME", "attached_profile", 1);
    AttachmentTool tool;
    if(!tool.initialize("librocprofiler-attach.so")) return 1;
    return tool.attach_to_process(std::stoi(argv[1]), argc > 2 ? std::stoul(argv[2]) : 0) ? 0 : 1;
}
