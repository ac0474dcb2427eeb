// A loop of launches whose kernels have known parts of the GPU's time, which do not drift.
//
//   mix [SEED]
//
// Eight kernels spin, each for a time that it is given. 3302 launches are drawn once, from the seed: so many of each kernel, with times of its own
// distribution, 20 us to 2 ms. They make a cycle of some 0.7 s, which is run again and again, each time in another order. So every cycle has the same
// shares, and a recording of some cycles has them, too; but no two stretches of 50 ms are alike. A cycle has six phases, and in each cycle each kernel
// prefers two of them, also drawn: so launches that follow one another resemble each other. 16 launches wait for the GPU at a time.
//
// One line on standard input, one line "@ {json}" on standard output:
//   mark   between two launches, with the device idle: the time (CLOCK_BOOTTIME, ns), and of each kernel so far its launches, the ns that were asked
//          for, and the ns that it saw pass by the GPU's timer
//   end    the same for the last time
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <poll.h>
#include <string>
#include <time.h>
#include <unistd.h>
#include <utility>
#include <vector>

constexpr int KERNELS = 8, PHASES = 6, PREFERRED = 2, WAITING = 16;
// How much more often a launch comes in a phase that its kernel prefers.
constexpr double PREFERENCE = 2.5;

__device__ unsigned long long timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ void spin(unsigned long long ns, unsigned long long *ran) {
    const unsigned long long begin = timer(), end = begin + ns;
    unsigned long long now = begin;
    while (now < end) now = timer();
    // One stream, one thread: no other thread adds at the same time.
    *ran += now - begin;
}

#define MIX(name, at) \
    extern "C" __global__ void name(unsigned long long ns, unsigned long long *ran) { spin(ns, ran + at); }
MIX(mix_two_far, 0)
MIX(mix_long, 1)
MIX(mix_middle, 2)
MIX(mix_even, 3)
MIX(mix_two_near, 4)
MIX(mix_steady, 5)
MIX(mix_short, 6)
MIX(mix_shortest, 7)
static const void *FUNCTIONS[KERNELS] = {(const void *)mix_two_far,  (const void *)mix_long,   (const void *)mix_middle, (const void *)mix_even,
                                         (const void *)mix_two_near, (const void *)mix_steady, (const void *)mix_short,  (const void *)mix_shortest};
static const char *NAMES[KERNELS] = {"mix_two_far", "mix_long", "mix_middle", "mix_even", "mix_two_near", "mix_steady", "mix_short", "mix_shortest"};
static const int LAUNCHES[KERNELS] = {484, 550, 875, 293, 300, 200, 280, 320};

// Steele, Lea and Flood's SplitMix64.
struct Random {
    uint64_t state;
    uint64_t next() {
        uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
    double part() { return double(next() >> 11) / 9007199254740992.0; }
    double between(double low, double high) { return low + (high - low) * part(); }
    int below(int count) { return int(next() % uint64_t(count)); }
};

static double exponential(Random &random, double mean) {
    const double us = -mean * __builtin_log(1 - random.part());
    return std::min(std::max(us, 20.0), 2000.0);
}
static double two(Random &random, double one, double other) { return (random.part() < 0.3 ? other : one) * random.between(0.9, 1.1); }

// Microseconds.
static double length(Random &random, int kernel) {
    switch (kernel) {
    case 0: return two(random, 200, 1600);
    case 1: return exponential(random, 300);
    case 2: return exponential(random, 120);
    case 3: return random.between(60, 400);
    case 4: return two(random, 40, 400);
    case 5: return random.between(135, 165);
    case 6: return exponential(random, 80);
    default: return exponential(random, 30);
    }
}

struct Launch {
    int kernel;
    unsigned long long ns;
};

static int errors;

static void ok(cudaError_t code, const char *what) {
    if (code != cudaSuccess && errors++ < 5) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
}
#define OK(call) ok((call), #call)

static std::vector<Launch> drawn(Random &random) {
    std::vector<Launch> all;
    for (int kernel = 0; kernel < KERNELS; kernel++)
        for (int at = 0; at < LAUNCHES[kernel]; at++) all.push_back({kernel, (unsigned long long)(length(random, kernel) * 1000)});
    return all;
}

// The same launches in another order.
static void shuffle(std::vector<Launch> &launches, Random &random) {
    double upto[KERNELS][PHASES];
    for (auto &phases : upto) {
        double weight[PHASES];
        std::fill(weight, weight + PHASES, 1.0);
        for (int left = PREFERRED; left;) {
            double &one = weight[random.below(PHASES)];
            if (one == 1.0) one = PREFERENCE, left--;
        }
        double sum = 0;
        for (int phase = 0; phase < PHASES; phase++) phases[phase] = sum += weight[phase];
    }
    std::vector<std::pair<double, Launch>> placed;
    for (const Launch &launch : launches) {
        const double *phases = upto[launch.kernel];
        const double at = random.between(0, phases[PHASES - 1]);
        int phase = 0;
        while (phase < PHASES - 1 && phases[phase] <= at) phase++;
        placed.push_back({phase + random.part(), launch});
    }
    std::sort(placed.begin(), placed.end(), [](const auto &one, const auto &other) { return one.first < other.first; });
    for (size_t at = 0; at < launches.size(); at++) launches[at] = placed[at].second;
}

static uint64_t boottime() {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return uint64_t(now.tv_sec) * 1000000000u + now.tv_nsec;
}

static unsigned long long launched[KERNELS], asked[KERNELS], *ran;

static std::string list(const unsigned long long *values) {
    std::string text;
    for (int kernel = 0; kernel < KERNELS; kernel++) text += (kernel ? ", \"" : "\"") + std::string(NAMES[kernel]) + "\": " + std::to_string(values[kernel]);
    return "{" + text + "}";
}

static void tell() {
    unsigned long long seen[KERNELS] = {};
    OK(cudaMemcpy(seen, ran, sizeof seen, cudaMemcpyDeviceToHost));
    printf("@ {\"time\": %llu, \"errors\": %d, \"launches\": %s, \"asked_ns\": %s, \"ran_ns\": %s}\n", (unsigned long long)boottime(), errors, list(launched).c_str(),
           list(asked).c_str(), list(seen).c_str());
    fflush(stdout);
}

// What was asked for since the last time. False at the end.
static bool answered() {
    static std::string text;
    pollfd in = {0, POLLIN, 0};
    while (poll(&in, 1, 0) > 0) {
        char some[256];
        const ssize_t got = read(0, some, sizeof some);
        if (got <= 0) return false;
        text.append(some, size_t(got));
    }
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
        if (text.compare(0, end, "mark")) return false;
        tell();
    }
    return true;
}

int main(int count, char **words) {
    Random random = {count > 1 ? strtoull(words[1], nullptr, 10) : 1};
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMalloc(&ran, KERNELS * sizeof *ran));
    OK(cudaMemset(ran, 0, KERNELS * sizeof *ran));
    std::vector<Launch> launches = drawn(random);
    // Each kernel once, so that its code is there.
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        unsigned long long none = 0;
        void *given[] = {&none, &ran};
        OK(cudaLaunchKernel(FUNCTIONS[kernel], dim3(1), dim3(1), given, 0, stream));
        launched[kernel]++;
    }
    OK(cudaStreamSynchronize(stream));
    unsigned long long cycle = 0;
    for (const Launch &launch : launches) cycle += launch.ns;
    printf("@ {\"ready\": true, \"cycle_ns\": %llu}\n", cycle);
    fflush(stdout);
    for (bool goes_on = errors == 0; goes_on;) {
        shuffle(launches, random);
        for (size_t at = 0; at < launches.size() && goes_on; at++) {
            Launch &launch = launches[at];
            void *given[] = {&launch.ns, &ran};
            OK(cudaLaunchKernel(FUNCTIONS[launch.kernel], dim3(1), dim3(1), given, 0, stream));
            launched[launch.kernel]++;
            asked[launch.kernel] += launch.ns;
            if (at % WAITING == WAITING - 1 || at + 1 == launches.size()) {
                OK(cudaStreamSynchronize(stream));
                goes_on = errors == 0 && answered();
            }
        }
    }
    OK(cudaStreamSynchronize(stream));
    tell();
    return errors ? 1 : 0;
}
