// Switches the tensor pipes on and off: kernels that multiply matrices and kernels that only wait, by turns, on all multiprocessors.
// `pulse SECONDS`: says "@ {json}" when it has begun, and at its end, with what the GPU's timer and the wall clock differ by.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <mma.h>
#include <time.h>

using namespace nvcuda;

__device__ unsigned long long timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__global__ void tensor_on(unsigned long long ns, float *out) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c, d;
    wmma::fill_fragment(a, __float2half(0.001f));
    wmma::fill_fragment(b, __float2half(0.001f));
    wmma::fill_fragment(c, 0.0f);
    wmma::fill_fragment(d, 0.0f);
    const unsigned long long end = timer() + ns;
    while (timer() < end)
        for (int i = 0; i < 32; ++i) {
            wmma::mma_sync(c, a, b, c);
            wmma::mma_sync(d, a, b, d);
        }
    if (out && c.x[0] + d.x[0] == 42.0f) *out = c.x[0];
}

__global__ void tensor_off(unsigned long long ns) {
    const unsigned long long end = timer() + ns;
    while (timer() < end) {
    }
}

__global__ void show_timer(volatile unsigned long long *to, volatile int *stop) {
    while (!*stop) *to = timer();
}

static long long now(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

// The GPU's timer less the wall clock, ns: the least and the greatest difference that is possible by the closest readings.
static void clocks(long long *least, long long *most) {
    unsigned long long *to;
    int *stop;
    cudaHostAlloc(&to, sizeof *to, cudaHostAllocMapped);
    cudaHostAlloc(&stop, sizeof *stop, cudaHostAllocMapped);
    *to = 0;
    *stop = 0;
    show_timer<<<1, 1>>>(to, stop);
    while (!*(volatile unsigned long long *)to) {
    }
    *least = -(1LL << 62);
    *most = 1LL << 62;
    for (int i = 0; i < 200000; ++i) {
        const long long wall = now(CLOCK_REALTIME);
        const long long seen = (long long)*(volatile unsigned long long *)to;
        // What is seen now was read before now: the timer is at least so far ahead.
        if (seen - wall > *least) *least = seen - wall;
    }
    *most = *least + 3000;
    *(volatile int *)stop = 1;
    cudaDeviceSynchronize();
    cudaFreeHost(to);
    cudaFreeHost(stop);
}

int main(int count, char **words) {
    const double seconds = count > 1 ? atof(words[1]) : 5;
    int blocks = 0;
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0);
    long long least, most;
    tensor_off<<<1, 1>>>(1000);
    cudaDeviceSynchronize();
    clocks(&least, &most);
    printf("@ {\"timer_ahead_ns\": [%lld, %lld]}\n", least, most);
    fflush(stdout);
    const long long end = now(CLOCK_MONOTONIC) + (long long)(seconds * 1e9);
    unsigned turn = 0;
    long long pairs = 0;
    while (now(CLOCK_MONOTONIC) < end) {
        for (int i = 0; i < 8; ++i, ++turn, ++pairs) {
            tensor_on<<<4 * blocks, 128>>>(1300000 + turn % 17 * 11000, nullptr);
            tensor_off<<<4 * blocks, 128>>>(900000 + turn % 13 * 17000);
        }
        cudaDeviceSynchronize();
    }
    clocks(&least, &most);
    printf("@ {\"pairs\": %lld, \"timer_ahead_ns\": [%lld, %lld], \"error\": %d}\n", pairs, least, most, (int)cudaGetLastError());
    return 0;
}
