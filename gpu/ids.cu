// Threads that launch graphs and kernels, with the small calls that PyTorch makes between them. CUPTI is used beside them as a line of words
// says, by this program or by another one that is started for it. Afterwards each thread's calls are looked at: how many threads have
// calls with one correlation id.
//
//   ids LIBCUPTI THREADS SILENT WORD ...
//
//   +KIND -KIND   a kind of activity on, off       single     calls that only ask are switched off one by one (SILENT: r1,r2,d3 ...)
//   wait=MS       wait                             flush, force   flush
//   run=COMMAND   PID in it is this process        look       prints what is to be seen up to here
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define OK(call)                                                                                          \
    do {                                                                                                  \
        cudaError_t error = (call);                                                                       \
        if (error) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); exit(4); }            \
    } while (0)

__global__ void ids_add(float *to) { to[threadIdx.x] += 1.0f; }

static std::atomic<bool> stop{false};
static std::atomic<int> ready{0};

static void launches() {
    cudaStream_t stream;
    float *memory, host[64];
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&memory, 256));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int at = 0; at < 12; at++) ids_add<<<1, 64, 0, stream>>>(memory);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int step = 0; !stop; step++) {
        int device;
        cudaStreamCaptureStatus status;
        OK(cudaGetDevice(&device));
        OK(cudaStreamIsCapturing(stream, &status));
        OK(cudaMemsetAsync(memory, 0, 256, stream));
        OK(cudaGetDevice(&device));
        ids_add<<<1, 64, 0, stream>>>(memory);
        OK(cudaPeekAtLastError());
        OK(cudaStreamIsCapturing(stream, &status));
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaGetLastError());
        OK(cudaMemcpyAsync(host, memory, 256, cudaMemcpyDeviceToHost, stream));
        OK(cudaStreamIsCapturing(stream, &status));
        OK(cudaStreamSynchronize(stream));
        if (step == 30) ready++;
    }
}

static int (*register_callbacks)(void *, void *), (*enable)(uint32_t), (*disable)(uint32_t), (*flush)(uint32_t);
static int (*enable_runtime)(uint32_t, uint8_t), (*enable_driver)(uint32_t, uint8_t), (*next_record)(uint8_t *, size_t, uint8_t **);
static std::mutex lock;
// Of each thread: correlation id to its calls.
static std::map<uint32_t, std::map<uint32_t, std::vector<uint32_t>>> calls;

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 4 << 20, *records = 0;
    *buffer = static_cast<uint8_t *>(aligned_alloc(8, *size));
}
static void completed(void *, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    std::lock_guard<std::mutex> guard(lock);
    uint8_t *record = nullptr;
    while (valid && next_record(buffer, valid, &record) == 0) {
        uint32_t words[10];
        memcpy(words, record, 8);
        // CUpti_ActivityAPI: kind, call, two times, process, thread, correlation id.
        if (words[0] != 4 && words[0] != 5) continue;
        memcpy(words, record, sizeof words);
        calls[words[7]][words[8]].push_back(words[0] << 16 | (words[1] & 0xffff));
    }
    free(buffer);
}

static void look(const char *name) {
    {
        std::lock_guard<std::mutex> guard(lock);
        calls.clear();
    }
    int status = register_callbacks(reinterpret_cast<void *>(requested), reinterpret_cast<void *>(completed));
    for (uint32_t kind : {10, 5, 4}) status = status ? status : enable(kind);
    usleep(30000);
    for (uint32_t kind : {4, 5, 10}) disable(kind);
    usleep(3000);
    flush(1);
    std::lock_guard<std::mutex> guard(lock);
    int twice = 0, all = 0;
    std::string text;
    for (auto &[thread, ids] : calls) {
        size_t most = 0;
        for (auto &[id, of] : ids) most = std::max(most, of.size()), all += static_cast<int>(of.size());
        if (most > 2) twice++, text += " " + std::to_string(most) + " of " + std::to_string(ids.size()) + " ids";
    }
    printf("{\"look\": \"%s\", \"status\": %d, \"calls\": %d, \"threads\": %zu, \"twice\": %d, \"text\": \"%s\"}\n", name, status, all, calls.size(), twice,
           text.substr(0, 120).c_str());
    fflush(stdout);
}

int main(int count, char **words) {
    if (count < 4) return 2;
    void *cupti = dlopen(words[1], RTLD_NOW);
    if (!cupti) return fprintf(stderr, "%s\n", dlerror()), 3;
    auto find = [&](const char *name, auto &to) { *reinterpret_cast<void **>(&to) = dlsym(cupti, name); };
    find("cuptiActivityRegisterCallbacks", register_callbacks), find("cuptiActivityEnable", enable), find("cuptiActivityDisable", disable);
    find("cuptiActivityFlushAll", flush), find("cuptiActivityGetNextRecord", next_record);
    find("cuptiActivityEnableRuntimeApi", enable_runtime), find("cuptiActivityEnableDriverApi", enable_driver);
    OK(cudaFree(nullptr));
    std::vector<std::thread> threads;
    int wanted = atoi(words[2]);
    for (int at = 0; at < wanted; at++) threads.emplace_back(launches);
    while (ready < wanted) usleep(1000);
    bool registered = false;
    for (int at = 4; at < count; at++) {
        std::string word = words[at];
        if (word[0] == '+') {
            if (!registered) register_callbacks(reinterpret_cast<void *>(requested), reinterpret_cast<void *>(completed));
            registered = true;
            enable(static_cast<uint32_t>(atoi(words[at] + 1)));
        } else if (word[0] == '-') {
            disable(static_cast<uint32_t>(atoi(words[at] + 1)));
        } else if (word == "single") {
            std::string list = words[3];
            for (size_t from = 0; from < list.size();) {
                size_t end = std::min(list.find(',', from), list.size());
                uint32_t call = static_cast<uint32_t>(atoi(list.c_str() + from + 1));
                list[from] == 'r' ? enable_runtime(call, 0) : enable_driver(call, 0);
                from = end + 1;
            }
        } else if (word.rfind("wait=", 0) == 0) {
            usleep(static_cast<useconds_t>(atof(words[at] + 5) * 1000));
        } else if (word == "flush" || word == "force") {
            flush(word == "force");
        } else if (word == "look") {
            look(word.c_str());
        } else if (word.rfind("run=", 0) == 0) {
            std::string command = word.substr(4);
            size_t place = command.find("PID");
            if (place != std::string::npos) command.replace(place, 3, std::to_string(getpid()));
            int status = system(command.c_str());
            if (status) printf("{\"run\": %d}\n", status);
        }
    }
    look("end");
    stop = true;
    for (auto &thread : threads) thread.join();
    return 0;
}
