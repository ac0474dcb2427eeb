// PC sampling beside launching threads, by CUPTI alone: which form of switching it off leaves the program going on.
//
//   stalls CUPTI FORM CYCLES SECONDS [PERIOD] [BUFFER_MIB]
//
// Eight threads launch kernels (one of them also allocates, and loads and unloads a module). A thread beside them, as a profiler's that
// came from outside, does the form again and again. Forms:
//   plain            Enable, GetData, Disable; "plain-context" with the context current on that thread
//   stop-disable     Enable, Start, Stop, GetData, Disable
//   start-stop       Enable once; Start, GetData, Stop, GetData again and again; Disable never
//   gate, gate-sync  Disable while all threads are held outside of CUDA (gate-sync: and the device has nothing to do)
//   gate-both        Enable, too
//   hold-enter, hold-exit   Disable while all threads are held in callbacks of CUPTI's at the begin, the end of a driver's call
//   on-exit          Disable in the callback at the end of a launch, on the launching thread; the others go on
//   on-exit-held     the same, while the others are held in theirs
//   finalize         no Disable: cuptiFinalize
//   session          as a session would: subscribe, hold all at the begin of a driver's call, Enable, go on, unsubscribe; GetData; the same
//                    hold with Disable; cuptiFinalize when all have left CUPTI. "session-stay": without cuptiFinalize
// Variables: STALLS_THREADS; STALLS_MIX=1: of the threads some wait for long kernels, one launches graphs, one computes, one sleeps;
// STALLS_HEAVY=1: kernels of 20 us, so that the GPU is the limit.
// One line "@ {json}" at the end. A watchdog ends the program (code 3) where the cycles or the launches stand still for 4 s, and tells where.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

constexpr int MOST = 64;
static int THREADS = 8;
static bool mix, heavy;
constexpr int PCS = 4096, REASONS = 64;
constexpr int ELEMENTS = 1 << 16;
constexpr double STILL = 4.0;

// CUPTI's structs, as cupti_pcsampling.h has them.
struct Reason { uint32_t index, samples; };
struct Pc { size_t size; uint64_t crc, offset; uint32_t function, pad; char *name; size_t reasons; Reason *reason; uint32_t correlation, pad2; };
struct Data { size_t size, collect; uint64_t samples, dropped; size_t pcs, remaining; uint64_t range; Pc *pc; uint64_t others; uint8_t full; };
struct Attribute { uint32_t type, status; uint64_t value[3]; };
struct Configure { size_t size; void *priv; CUcontext context; size_t number; Attribute *attributes; };
struct OfContext { size_t size; void *priv; CUcontext context; };
struct GetData { size_t size; void *priv; CUcontext context; Data *data; };
struct Number { size_t size; void *priv; CUcontext context; size_t *number; };
struct Site { uint32_t site; };

__global__ void stalls_add(float *to, int n) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < n) to[at] += 1.0f;
}
__global__ void stalls_chase(float *to, int n) {
    float value = threadIdx.x;
    for (int at = 0; at < 200; at++) value = to[(int(value) + at * 97) & (n - 1)] * 1.0001f;
    if (value == 42.5f) *to = value;
}
__global__ void stalls_spin(long long ticks, float *to) {
    long long end = clock64() + ticks;
    float value = threadIdx.x;
    while (clock64() < end) value = value * 1.0001f + 0.5f;
    if (value == 42.0f) *to = value;
}
static const char *MODULE = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry of_module() { ret; }\n";

static void *cupti;
static std::atomic<uint64_t> launches[MOST], errors, cycles;
static std::atomic<int> inside, held;
static std::atomic<bool> paused, stopped, hold, done_on_thread;
static std::atomic<int> order;          // 1: whoever comes first in a callback does it
static std::atomic<const char *> phase{"begin"};
static std::atomic<int> controller, launcher;
static int wanted_site;                 // 0 enter, 1 exit
static CUcontext context;
static Data data;
static std::vector<Pc> pcs(PCS);
static std::vector<Reason> reasons(PCS *REASONS);
static uint64_t all_samples, all_dropped, full_times, most_pcs;
static double slowest_off, slowest_on, held_for, longest_held;
static std::atomic<int> not_all_out;

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
template <class Type> static uint32_t call(const char *name, Type *argument) {
    auto function = reinterpret_cast<uint32_t (*)(Type *)>(dlsym(cupti, name));
    return function ? function(argument) : 9999;
}
static uint32_t of_context(const char *name) {
    OfContext words{sizeof words, nullptr, context};
    return call(name, &words);
}
static std::string first_problem;
static bool good(const char *what, uint32_t code) {
    if (code && first_problem.empty()) first_problem = std::string(what) + ": " + std::to_string(code);
    return code == 0;
}

static uint32_t configure(uint32_t period, size_t buffer, bool start_stop) {
    static Data none;
    static std::vector<Pc> room(PCS);
    static std::vector<Reason> room_reasons(PCS *REASONS);
    none = Data{sizeof none, PCS, 0, 0, 0, 0, 0, room.data(), 0, 0};
    for (int at = 0; at < PCS; at++) room[at] = Pc{sizeof(Pc), 0, 0, 0, 0, nullptr, 0, &room_reasons[at * REASONS], 0, 0};
    Attribute attributes[] = {
        {5, 0, {1, 0, 0}}, {1, 0, {period, 0, 0}}, {4, 0, {buffer, 0, 0}}, {6, 0, {start_stop ? 1u : 0u, 0, 0}}, {7, 0, {1, 0, 0}},
        {8, 0, {reinterpret_cast<uint64_t>(&none), 0, 0}},
    };
    Configure words{sizeof words, nullptr, context, sizeof attributes / sizeof *attributes, attributes};
    return call("cuptiPCSamplingSetConfigurationAttribute", &words);
}
static uint32_t get() {
    uint32_t code;
    for (int turn = 0; turn < 8; turn++) {
        data = Data{sizeof data, PCS, 0, 0, 0, 0, 0, pcs.data(), 0, 0};
        for (int at = 0; at < PCS; at++) pcs[at] = Pc{sizeof(Pc), 0, 0, 0, 0, nullptr, 0, &reasons[at * REASONS], 0, 0};
        GetData words{sizeof words, nullptr, context, &data};
        code = call("cuptiPCSamplingGetData", &words);
        all_samples += data.samples;
        all_dropped += data.dropped;
        full_times += data.full;
        if (data.pcs > most_pcs) most_pcs = data.pcs;
        if (code || data.remaining == 0) break;
    }
    return code;
}

static void callback(void *, uint32_t, uint32_t, const void *given) {
    if (static_cast<const Site *>(given)->site != static_cast<uint32_t>(wanted_site)) return;
    if (!hold && !order) return;
    // The thread that switches may make calls of the driver, too.
    if (controller == static_cast<int>(syscall(SYS_gettid))) return;
    int one = 1;
    if (order.compare_exchange_strong(one, 2)) {
        if (hold) {
            double end = seconds() + 1;
            while (held < THREADS - 1 && seconds() < end) usleep(20);
        }
        good("Disable in a callback", of_context("cuptiPCSamplingDisable"));
        hold = false;
        done_on_thread = true;
        return;
    }
    if (!hold) return;
    held++;
    while (hold) usleep(20);
    held--;
}

static void gate() {
    inside--;
    while (paused) usleep(20);
    inside++;
    while (paused) {
        inside--;
        while (paused) usleep(20);
        inside++;
    }
}

static void compute(int id) {
    volatile double sum = 0;
    while (!stopped) {
        for (int at = 0; at < 1000; at++) sum = sum + at;
        launches[id]++;
    }
}
static void rest(int id) {
    while (!stopped) {
        usleep(3000);
        launches[id]++;
    }
}
static cudaGraphExec_t make_graph(cudaStream_t stream, float *some) {
    cudaGraph_t made;
    cudaGraphExec_t graph{};
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)) errors++;
    for (int at = 0; at < 12; at++) stalls_add<<<16, 256, 0, stream>>>(some, ELEMENTS);
    if (cudaStreamEndCapture(stream, &made) || cudaGraphInstantiate(&graph, made, 0)) errors++;
    return graph;
}

static void launch(int id) {
    if (id != 1 && id != 2) launcher = static_cast<int>(syscall(SYS_gettid));
    cudaStream_t stream;
    float *some;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) || cudaMalloc(&some, ELEMENTS * sizeof(float))) errors++;
    cudaMemset(some, 0, ELEMENTS * sizeof(float));
    if (mix && id == 1) return compute(id);
    if (mix && id == 2) return rest(id);
    cudaGraphExec_t graph{};
    if (mix && id == 3) graph = make_graph(stream, some);
    inside++;
    for (uint64_t step = 0; !stopped; step++) {
        gate();
        if (graph) {
            if (cudaGraphLaunch(graph, stream)) errors++;
            launches[id]++;
            if (step % 50 == 49 && cudaStreamSynchronize(stream)) errors++;
            continue;
        }
        if (mix && (id == 4 || id == 5)) {
            // 5 to 60 ms; the wait spins or sleeps.
            stalls_spin<<<1, 32, 0, stream>>>(10000000ll + 10000000ll * (step % 12), some);
            launches[id]++;
            if (id == 5) {
                cudaEvent_t event;
                if (cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming) || cudaEventRecord(event, stream) || cudaEventSynchronize(event) ||
                    cudaEventDestroy(event))
                    errors++;
            }
            if (cudaStreamSynchronize(stream)) errors++;
            continue;
        }
        if (heavy)
            stalls_chase<<<1024, 256, 0, stream>>>(some, ELEMENTS);
        else if (step % 8 == 7)
            stalls_chase<<<32, 256, 0, stream>>>(some, ELEMENTS);
        else
            stalls_add<<<ELEMENTS / 256, 256, 0, stream>>>(some, ELEMENTS);
        launches[id]++;
        if (step % 200 == 199 && cudaStreamSynchronize(stream)) errors++;
        if (id == 0 && step % 2000 == 1999) {
            void *more;
            CUmodule module;
            if (cudaMalloc(&more, 1 << 20) || cudaFree(more)) errors++;
            if (cuModuleLoadData(&module, MODULE) == CUDA_SUCCESS && cuModuleUnload(module) != CUDA_SUCCESS) errors++;
        }
    }
    inside--;
    if (cudaStreamSynchronize(stream)) errors++;
}
static uint64_t launched() {
    uint64_t sum = 0;
    for (int id = 0; id < THREADS; id++)
        if (!mix || (id != 1 && id != 2)) sum += launches[id];
    return sum;
}

static void backtrace_of(int) {
    void *frames[48];
    int number = backtrace(frames, 48);
    static const char head[] = "-- thread\n";
    (void)!write(2, head, sizeof head - 1);
    backtrace_symbols_fd(frames, number, 2);
}
static std::string form;
static double began;
static void result(const char *hung) {
    printf("@ {\"form\": \"%s\", \"cycles\": %lu, \"hung\": \"%s\", \"seconds\": %.2f, \"errors\": %lu, \"problem\": \"%s\", \"samples\": %lu, \"dropped\": %lu, "
           "\"full\": %lu, \"pcs\": %lu, \"slowest_on_ms\": %.1f, \"slowest_off_ms\": %.1f, \"held_ms\": %.1f, \"longest_held_ms\": %.1f, \"not_all_out\": %d}\n",
           form.c_str(), cycles.load(), hung, seconds() - began, errors.load(), first_problem.c_str(), all_samples, all_dropped, full_times, most_pcs,
           slowest_on * 1e3, slowest_off * 1e3, cycles ? held_for * 1e3 / (2.0 * cycles) : 0.0, longest_held * 1e3, not_all_out.load());
    fflush(stdout);
}
static void watch() {
    uint64_t last_launches = 0, last_cycles = 0;
    double moved_launches = seconds(), moved_cycles = moved_launches;
    for (;;) {
        usleep(100000);
        double now = seconds();
        uint64_t a = launched(), b = cycles;
        if (a != last_launches) last_launches = a, moved_launches = now;
        if (b != last_cycles) last_cycles = b, moved_cycles = now;
        bool ending = stopped;
        if (now - moved_cycles < STILL && (ending || now - moved_launches < STILL)) continue;
        std::string where = std::string(phase.load()) + (now - moved_launches >= STILL ? ", launches stand still" : "");
        for (int tid : {controller.load(), launcher.load()}) {
            syscall(SYS_tgkill, getpid(), tid, SIGUSR2);
            usleep(200000);
        }
        result(where.c_str());
        _exit(3);
    }
}

// Whether each other thread is asleep (in two looks) or has run for 0.5 ms: with all callbacks held, no thread is in the driver then but
// those that wait or compute in it.
static bool all_are_out(double limit) {
    struct Seen { int tid; unsigned long long ran; int asleep; bool out; };
    std::vector<Seen> seen;
    auto read = [](int tid, unsigned long long &ran, char &state) {
        char path[64], text[512];
        snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
        FILE *file = fopen(path, "r");
        if (!file) return false;
        bool fine = fscanf(file, "%llu", &ran) == 1;
        fclose(file);
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
        file = fopen(path, "r");
        if (!file) return false;
        text[fread(text, 1, sizeof text - 1, file)] = 0;
        fclose(file);
        const char *end = strrchr(text, ')');
        state = end ? end[2] : 'R';
        return fine;
    };
    int own = static_cast<int>(syscall(SYS_gettid));
    DIR *tasks = opendir("/proc/self/task");
    while (dirent *entry = readdir(tasks)) {
        int tid = atoi(entry->d_name);
        if (tid == 0 || tid == own) continue;
        Seen one{tid, 0, 0, false};
        char state;
        if (read(tid, one.ran, state)) seen.push_back(one);
    }
    closedir(tasks);
    double end = seconds() + limit;
    for (;;) {
        usleep(1000);
        bool all = true;
        for (auto &each : seen) {
            if (each.out) continue;
            unsigned long long ran = 0;
            char state = 'R';
            if (!read(each.tid, ran, state)) {
                each.out = true;
                continue;
            }
            each.asleep = strchr("SDTtZX", state) ? each.asleep + 1 : 0;
            each.out = each.asleep >= 2 || ran - each.ran > 500000;
            all = all && each.out;
        }
        if (all) return true;
        if (seconds() > end) return false;
    }
}
// Runs it while all threads are held at the begin of a driver's call.
template <class Body> static bool while_held(const char *what, Body body) {
    auto subscribe = reinterpret_cast<uint32_t (*)(void **, void *, void *)>(dlsym(cupti, "cuptiSubscribe"));
    auto unsubscribe = reinterpret_cast<uint32_t (*)(void *)>(dlsym(cupti, "cuptiUnsubscribe"));
    auto enable = reinterpret_cast<uint32_t (*)(uint32_t, void *, uint32_t)>(dlsym(cupti, "cuptiEnableDomain"));
    void *subscriber = nullptr;
    phase = "subscribing";
    if (!good("Subscribe", subscribe(&subscriber, reinterpret_cast<void *>(callback), nullptr))) return false;
    hold = true;
    double begin = seconds();
    if (!good("EnableDomain", enable(1, subscriber, 1))) hold = false;
    phase = "waiting until all are out";
    bool fine = hold && all_are_out(2);
    if (!fine) not_all_out++;
    phase = what;
    fine = body();
    hold = false;
    double took = seconds() - begin;
    held_for += took;
    if (took > longest_held) longest_held = took;
    phase = "unsubscribing";
    return good("Unsubscribe", unsubscribe(subscriber)) && fine;
}

static double speed(double length) {
    uint64_t before = launched();
    double begin = seconds();
    usleep(static_cast<useconds_t>(length * 1e6));
    return (launched() - before) / (seconds() - begin);
}
static void pause_all() {
    paused = true;
    while (inside > 0) usleep(20);
}

int main(int number, char **word) {
    if (number < 5) return 2;
    form = word[2];
    uint64_t most = strtoull(word[3], nullptr, 0);
    double limit = atof(word[4]);
    uint32_t period = number > 5 ? atoi(word[5]) : 18;
    size_t buffer = size_t(number > 6 ? atoi(word[6]) : 32) << 20;
    began = seconds();
    if (const char *text = getenv("STALLS_THREADS")) THREADS = atoi(text);
    if (THREADS < 1 || THREADS > MOST) return 2;
    mix = getenv("STALLS_MIX") != nullptr;
    heavy = getenv("STALLS_HEAVY") != nullptr;
    void *warm[4];
    backtrace(warm, 4);
    signal(SIGUSR2, backtrace_of);
    if (cudaFree(nullptr) || cuCtxGetCurrent(&context)) return 4;
    CUcontext mine = context;
    std::vector<std::thread> running;
    for (int id = 0; id < THREADS; id++) running.emplace_back(launch, id);
    while (launched() < 2000) usleep(1000);
    speed(1.0);
    double before = speed(0.5);
    std::thread(watch).detach();
    double with = 0, after = 0, disabled = 0, finalized = 0;
    uint32_t kernels_after = 9998, kernels_meanwhile = 9998;
    std::thread control([&] {
        controller = static_cast<int>(syscall(SYS_gettid));
        phase = "load";
        cupti = dlopen(word[1], RTLD_NOW);
        if (!cupti) {
            first_problem = "cannot be loaded";
            return;
        }
        uint32_t version = 0;
        call("cuptiGetVersion", &version);
        printf("@ {\"cupti\": %u, \"before\": %.0f}\n", version, before);
        bool session = !form.compare(0, 7, "session");
        bool only_start_stop = form == "start-stop", start_stop = only_start_stop || form == "stop-disable";
        bool callbacks = !form.compare(0, 4, "hold") || !form.compare(0, 2, "on");
        wanted_site = form != "hold-enter" && !session;
        if (form == "plain-context") cuCtxSetCurrent(mine);
        void *subscriber = nullptr;
        if (callbacks) {
            auto subscribe = reinterpret_cast<uint32_t (*)(void **, void *, void *)>(dlsym(cupti, "cuptiSubscribe"));
            auto enable = reinterpret_cast<uint32_t (*)(uint32_t, void *, uint32_t)>(dlsym(cupti, "cuptiEnableDomain"));
            if (!good("Subscribe", subscribe(&subscriber, reinterpret_cast<void *>(callback), nullptr))) return;
            if (!good("EnableDomain", enable(1, subscriber, 1))) return;
        }
        auto on = [&] {
            phase = "Enable";
            double begin = seconds();
            if (session) {
                bool fine = while_held("Enable while held", [&] {
                    return good("Enable", of_context("cuptiPCSamplingEnable")) && good("SetConfigurationAttribute", configure(period, buffer, false));
                });
                double took = seconds() - begin;
                if (took > slowest_on) slowest_on = took;
                return fine;
            }
            if (form == "gate-both") pause_all();
            bool fine = good("Enable", of_context("cuptiPCSamplingEnable"));
            phase = "configure";
            fine = fine && good("SetConfigurationAttribute", configure(period, buffer, start_stop));
            paused = false;
            double took = seconds() - begin;
            if (took > slowest_on) slowest_on = took;
            return fine;
        };
        if (only_start_stop && !on()) return;
        double last = seconds() + limit;
        while (cycles < most && seconds() < last) {
            if (!only_start_stop && !on()) return;
            if (start_stop) {
                phase = "Start";
                if (!good("Start", of_context("cuptiPCSamplingStart"))) return;
            }
            if (cycles == 2) with = speed(1.0);
            usleep(10000 + 1000 * (cycles % 17));
            phase = "GetData";
            good("GetData", get());
            double begin = seconds();
            if (start_stop) {
                phase = "Stop";
                if (!good("Stop", of_context("cuptiPCSamplingStop"))) return;
                good("GetData", get());
            }
            phase = "Disable";
            if (session) {
                if (!while_held("Disable while held", [&] { return good("Disable", of_context("cuptiPCSamplingDisable")); })) return;
                if (cycles == 2) disabled = speed(0.5);
                if (form == "session") {
                    phase = "waiting until all are out for Finalize";
                    all_are_out(2);
                    usleep(5000);
                    phase = "Finalize";
                    auto finalize = reinterpret_cast<uint32_t (*)()>(dlsym(cupti, "cuptiFinalize"));
                    good("Finalize", finalize());
                    if (cycles == 2) finalized = speed(0.5);
                }
            } else if (form == "finalize") {
                phase = "Finalize";
                auto finalize = reinterpret_cast<uint32_t (*)()>(dlsym(cupti, "cuptiFinalize"));
                good("Finalize", finalize());
            } else if (!form.compare(0, 4, "gate")) {
                phase = "held outside";
                pause_all();
                if (form == "gate-sync") cudaDeviceSynchronize();
                phase = "Disable while held outside";
                good("Disable", of_context("cuptiPCSamplingDisable"));
                paused = false;
            } else if (!form.compare(0, 4, "hold")) {
                phase = "held in callbacks";
                hold = true;
                double end = seconds() + 2;
                while (held < THREADS && seconds() < end) usleep(20);
                phase = held == THREADS ? "Disable while all are held in callbacks" : "Disable while some are held in callbacks";
                good("Disable", of_context("cuptiPCSamplingDisable"));
                hold = false;
                while (held) usleep(20);
            } else if (callbacks) {
                phase = "Disable in a callback";
                done_on_thread = false;
                hold = form == "on-exit-held";
                order = 1;
                while (!done_on_thread) usleep(20);
                order = 0;
                while (held) usleep(20);
            } else if (!only_start_stop) {
                good("Disable", of_context("cuptiPCSamplingDisable"));
            }
            double took = seconds() - begin;
            if (took > slowest_off) slowest_off = took;
            cycles++;
            usleep(5000);
        }
        phase = "after";
        after = speed(0.5);
        cycles++;
        // Whether kernels can be recorded in a process in which it was on.
        auto enable = reinterpret_cast<uint32_t (*)(uint32_t)>(dlsym(cupti, "cuptiActivityEnable"));
        auto disable = reinterpret_cast<uint32_t (*)(uint32_t)>(dlsym(cupti, "cuptiActivityDisable"));
        phase = "recording kernels after";
        kernels_after = enable(10);
        usleep(20000);
        if (kernels_after == 0) disable(10);
        if (only_start_stop) {
            phase = "sampling while kernels are recorded";
            kernels_meanwhile = enable(10);
            good("Start", of_context("cuptiPCSamplingStart"));
            usleep(50000);
            good("Stop", of_context("cuptiPCSamplingStop"));
            good("GetData", get());
            disable(10);
        }
        cycles++;
    });
    control.join();
    phase = "end of the program";
    stopped = true;
    for (auto &thread : running) thread.join();
    cycles++;
    printf("@ {\"with\": %.0f, \"after\": %.0f, \"ratio_with\": %.4f, \"ratio_after\": %.4f, \"ratio_disabled\": %.4f, \"ratio_finalized\": %.4f, \"kernels_after\": %u, \"kernels_meanwhile\": %u}\n", with, after,
           with / before, after / before, disabled / before, finalized / before, kernels_after, kernels_meanwhile);
    result("");
    return first_problem.empty() && !errors ? 0 : 1;
}
