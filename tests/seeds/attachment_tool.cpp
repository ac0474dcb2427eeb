#include "attachment_tool.hpp"

#include <dlfcn.h>
#include <signal.h>

#include <chrono>
#include <iostream>
#include <thread>

AttachmentTool::~AttachmentTool()
{
    if(library_) dlclose(library_);
}

bool AttachmentTool::initialize(const char* library)
{
    library_ = dlopen(library, RTLD_NOW);
    if(!library_)
    {
        std::cerr << "cannot load " << library << ": " << dlerror() << '\n';
        return false;
    }
    attach_ = reinterpret_cast<void (*)(uint32_t)>(dlsym(library_, "attach"));
    detach_ = reinterpret_cast<void (*)()>(dlsym(library_, "detach"));
    if(attach_ && detach_) return true;
    std::cerr << library << " has no attach() or no detach()\n";
    return false;
}

bool AttachmentTool::attach_to_process(pid_t pid, uint32_t duration_ms)
{
    using namespace std::chrono_literals;
    if(kill(pid, 0) != 0)
    {
        std::cerr << "process " << pid << " is not accessible\n";
        return false;
    }
    std::cout << "attaching to " << pid << std::endl;
    attach_(static_cast<uint32_t>(pid));
    std::cout << "profiling" << std::endl;
    if(duration_ms > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms));
    else
        while(kill(pid, 0) == 0)
            std::this_thread::sleep_for(100ms);
    detach_();
    std::cout << "completed" << std::endl;
    return true;
}
