// A small attach tool over the C interface of librocprofiler-sdk-rocattach: attaches to a process, profiles it for a while or until it
// ends, detaches. What is recorded, and where to, is said by environment variables that are set before the attach.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

namespace
{
using Clock = std::chrono::steady_clock;

// The attach library under the names that it has had, newest first.
constexpr std::array library_names = {"librocprofiler-sdk-rocattach.so.1", "librocprofiler-sdk-rocattach.so",
                                      "librocprofiler-attach.so", "librocprofv3-attach.so"};

volatile sig_atomic_t asked_to_stop = 0;

extern "C" void on_signal(int) { asked_to_stop = 1; }

// The attach library. Its first generation has attach() and detach(), which give no status; later ones have rocattach_attach() and
// rocattach_detach(), which do.
class AttachLibrary
{
public:
    bool open(const char* named, bool first_generation)
    {
        if(named)
            handle_ = dlopen(named, RTLD_NOW);
        else
            for(const char* name : library_names)
                if((handle_ = dlopen(name, RTLD_NOW))) break;
        if(!handle_)
        {
            std::cerr << "attach-tool: error: cannot load the attach library: " << dlerror() << '\n'
                      << "hint: put the folder it is in into LD_LIBRARY_PATH, or name it with --library\n";
            return false;
        }
        if(!first_generation)
        {
            attach_status_ = find<int(int)>("rocattach_attach");
            detach_status_ = find<int(int)>("rocattach_detach");
        }
        attach_ = find<void(uint32_t)>("attach");
        detach_ = find<void()>("detach");
        if((attach_status_ && detach_status_) || (attach_ && detach_)) return true;
        std::cerr << "attach-tool: error: the attach library has neither attach() nor rocattach_attach()\n";
        return false;
    }

    bool attach(pid_t pid) const
    {
        if(attach_status_ && detach_status_) return attach_status_(pid) == 0;
        attach_(static_cast<uint32_t>(pid));
        return true;  // it does not say
    }

    bool detach(pid_t pid) const
    {
        if(attach_status_ && detach_status_) return detach_status_(pid) == 0;
        detach_();
        return true;
    }

private:
    template <typename Function>
    Function* find(const char* name) const
    {
        return reinterpret_cast<Function*>(dlsym(handle_, name));
    }

    void* handle_                = nullptr;
    int (*attach_status_)(int)   = nullptr;
    int (*detach_status_)(int)   = nullptr;
    void (*attach_)(uint32_t)    = nullptr;
    void (*detach_)()            = nullptr;
};

bool looks_like_a_gpu_process(pid_t pid)
{
    std::ifstream maps{"/proc/" + std::to_string(pid) + "/maps"};
    if(!maps) return true;  // not ours to read: the library will say why
    for(std::string line; std::getline(maps, line);)
        if(line.find("libamdhip64") != std::string::npos || line.find("libhsa-runtime64") != std::string::npos) return true;
    return false;
}

// Only what the user has not set already.
void set_defaults()
{
    setenv("ROCPROF_HIP_RUNTIME_API_TRACE", "1", 0);
    setenv("ROCPROF_KERNEL_TRACE", "1", 0);
    setenv("ROCPROF_MEMORY_COPY_TRACE", "1", 0);
    setenv("ROCPROF_OUTPUT_FORMAT", "csv", 0);
    setenv("ROCPROF_OUTPUT_PATH", "./attachment-output", 0);
    setenv("ROCPROF_OUTPUT_FILE_NAME", "attached_profile", 0);
}

// Waits for the end of the duration, the end of the process, or a signal to us, whichever comes first.
void wait_for_the_end(pid_t pid, int process, std::optional<std::chrono::milliseconds> duration)
{
    const auto until = duration ? Clock::now() + *duration : Clock::time_point::max();
    while(!asked_to_stop)
    {
        auto left = std::chrono::milliseconds{500};
        if(duration) left = std::min(left, std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()));
        if(left.count() <= 0) return;
        pollfd end{process, POLLIN, 0};
        // Without a descriptor of the process this is a plain pause between two looks.
        if(poll(&end, process >= 0 ? 1 : 0, static_cast<int>(left.count())) > 0) return;
        if(process < 0 && kill(pid, 0) != 0 && errno == ESRCH) return;
    }
}

template <typename Number>
std::optional<Number> number(std::string_view text)
{
    Number     value{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if(result.ec != std::errc{} || result.ptr != text.data() + text.size()) return std::nullopt;
    return value;
}

int usage(const char* program)
{
    std::cerr << "Usage: " << program << " PID [MILLISECONDS] [--library FILE] [--first-generation]\n"
              << "  Without MILLISECONDS: until the process ends, or Ctrl-C. Settings come from ROCPROF_* variables.\n";
    return 2;
}
}  // namespace

int main(int argc, char** argv)
{
    std::optional<pid_t>                     pid;
    std::optional<std::chrono::milliseconds> duration;
    const char*                              library          = nullptr;
    bool                                     first_generation = false;
    for(int i = 1; i < argc; ++i)
    {
        const std::string_view word = argv[i];
        if(word == "--library" && i + 1 < argc)
            library = argv[++i];
        else if(word == "--first-generation")
            first_generation = true;
        else if(!pid && (pid = number<pid_t>(word)) && *pid > 0)
            continue;
        else if(const auto ms = number<uint32_t>(word); pid && !duration && ms && *ms > 0)
            duration = std::chrono::milliseconds{*ms};
        else
            return usage(argv[0]);
    }
    if(!pid) return usage(argv[0]);

    if(kill(*pid, 0) != 0)
    {
        std::cerr << "attach-tool: error: process " << *pid << ": " << std::strerror(errno) << '\n';
        return 1;
    }
    if(!looks_like_a_gpu_process(*pid))
    {
        std::cerr << "attach-tool: error: process " << *pid << " has no GPU runtime loaded\n";
        return 1;
    }

    AttachLibrary tool;
    if(!tool.open(library, first_generation)) return 1;
    set_defaults();

    struct sigaction action{};
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);

    // Its own descriptor, so that a process that gets the same number later is not taken for it.
    const int process = static_cast<int>(syscall(SYS_pidfd_open, *pid, 0));
    std::cout << "Attaching to process " << *pid << std::endl;
    if(!tool.attach(*pid)) return 1;

    if(duration)
        std::cout << "Profiling for " << duration->count() << " milliseconds..." << std::endl;
    else
        std::cout << "Profiling until the process ends..." << std::endl;
    wait_for_the_end(*pid, process, duration);
    if(process >= 0) close(process);

    if(!tool.detach(*pid))
    {
        std::cerr << "attach-tool: error: the detach failed\n";
        return 1;
    }
    std::cout << "Profiling completed; output below " << std::getenv("ROCPROF_OUTPUT_PATH") << std::endl;
    return 0;
}
