// An attach tool as AMD's documents build one: the attach library is loaded by name, and has attach(pid) and detach().
#pragma once

#include <sys/types.h>

#include <cstdint>

class AttachmentTool
{
public:
    AttachmentTool() = default;
    AttachmentTool(const AttachmentTool&) = delete;
    AttachmentTool& operator=(const AttachmentTool&) = delete;
    ~AttachmentTool();

    // Loads the library and finds the two functions.
    bool initialize(const char* library);
    // Attaches for so long; for 0, until the process ends.
    bool attach_to_process(pid_t pid, uint32_t duration_ms);

private:
    void* library_ = nullptr;
    void (*attach_)(uint32_t) = nullptr;
    void (*detach_)() = nullptr;
};
