// The tool of seeds/001: the next names.
#include "attachment_tool.hpp"

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv)
{
    if(argc < 2)
    {
        std::cerr << "usage: " << argv[0] << " PID [MILLISECONDS]\n";
        return 1;
    }
    setenv("ROCPROF_HIP_RUNTIME_API_TRACE", "1", 1);
    setenv("ROCPROF_KERNEL_TRACE", "1", 1);
    setenv("ROCPROF_MEMORY_COPY_TRACE", "1", 1);
    setenv("ROCPROF_OUTPUT_PATH", "./attachment-output", 1);
    setenv("ROCPROF_OUTPUT_FILE_NAME", "attached_profile", 1);
    AttachmentTool tool;
    if(!tool.initialize("librocprofiler-sdk-rocattach.so")) return 1;
    return tool.attach_to_process(std::stoi(argv[1]), argc > 2 ? std::stoul(argv[2]) : 0) ? 0 : 1;
}
