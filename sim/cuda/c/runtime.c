/* libcudart.so.12 and .13: the runtime over the driver. Each call of it is around the driver's calls that it makes, and these have its
 * number. */
#include "model.h"
#include <pthread.h>
#include <stdlib.h>

#define RUNTIME(cbid_name)                                                                                                     \
    struct model_call call;                                                                                                    \
    model_enter(&call, true, CUPTI_RUNTIME_TRACE_CBID_##cbid_name, #cbid_name)
#define DONE(result) return model_exit(&call, result)

struct kernel {
    const void *host;
    const char *name;
    CUfunction function;
    struct kernel *next;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *kernels;
static CUmodule module;
static __thread int device;
static __thread CUcontext current;

/* The calling thread's context, made current. */
static CUresult ready(void) {
    if (current) return CUDA_SUCCESS;
    CUresult error = cuInit(0);
    if (!error) error = cuDevicePrimaryCtxRetain(&current, device);
    return error ? error : cuCtxSetCurrent(current);
}

EXPORT void **__cudaRegisterFatBinary(void *image) {
    (void)image;
    return 0;
}

EXPORT void __cudaRegisterFunction(void **modules, const char *host, char *device_name, const char *name, int limit, void *tid,
                                   void *bid, void *block, void *grid, int *size) {
    (void)modules, (void)device_name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
    struct kernel *kernel = calloc(1, sizeof *kernel);
    if (!kernel) abort();
    *kernel = (struct kernel){host, name, 0, kernels};
    kernels = kernel;
}

static CUfunction function_of(const void *host) {
    CUfunction found = 0;
    pthread_mutex_lock(&lock);
    for (struct kernel *kernel = kernels; kernel; kernel = kernel->next) {
        if (kernel->host != host) continue;
        if (!module && cuModuleLoadData(&module, 0)) break;
        if (!kernel->function && cuModuleGetFunction(&kernel->function, module, kernel->name)) break;
        found = kernel->function;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    RUNTIME(cudaRuntimeGetVersion_v3020);
    *version = 1000 * MODEL_MAJOR;
    DONE(0);
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    RUNTIME(cudaGetDeviceCount_v3020);
    CUresult error = cuInit(0);
    DONE(error ? error : cuDeviceGetCount(count));
}

EXPORT cudaError_t cudaSetDevice(int wanted) {
    RUNTIME(cudaSetDevice_v3020);
    device = wanted;
    current = 0;
    DONE(ready());
}

EXPORT cudaError_t cudaDeviceSynchronize(void) {
    RUNTIME(cudaDeviceSynchronize_v3020);
    CUresult error = ready();
    DONE(error ? error : cuCtxSynchronize());
}

EXPORT cudaError_t cudaMalloc(void **at, size_t bytes) {
    RUNTIME(cudaMalloc_v3020);
    CUresult error = ready();
    DONE(error ? error : cuMemAlloc((CUdeviceptr *)at, bytes));
}

EXPORT cudaError_t cudaFree(void *at) {
    RUNTIME(cudaFree_v3020);
    DONE(cuMemFree((CUdeviceptr)at));
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, cudaStream_t stream) {
    RUNTIME(cudaMemcpyAsync_v3020);
    CUresult error = ready();
    if (error) DONE(error);
    if (kind == cudaMemcpyHostToDevice) DONE(cuMemcpyHtoDAsync((CUdeviceptr)to, from, bytes, stream));
    if (kind == cudaMemcpyDeviceToHost) DONE(cuMemcpyDtoHAsync(to, (CUdeviceptr)from, bytes, stream));
    DONE(cuMemcpyAsync((CUdeviceptr)to, (CUdeviceptr)from, bytes, stream));
}

EXPORT cudaError_t cudaMemsetAsync(void *at, int value, size_t bytes, cudaStream_t stream) {
    RUNTIME(cudaMemsetAsync_v3020);
    CUresult error = ready();
    DONE(error ? error : cuMemsetD8Async((CUdeviceptr)at, (unsigned char)value, bytes, stream));
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    RUNTIME(cudaStreamCreate_v3020);
    CUresult error = ready();
    DONE(error ? error : cuStreamCreate(stream, 0));
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    RUNTIME(cudaStreamDestroy_v5050);
    DONE(cuStreamDestroy(stream));
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    RUNTIME(cudaStreamSynchronize_v3020);
    CUresult error = ready();
    DONE(error ? error : cuStreamSynchronize(stream));
}

EXPORT cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    RUNTIME(cudaLaunchKernel_v7000);
    CUresult error = ready();
    if (error) DONE(error);
    CUfunction function = function_of(host);
    if (!function) DONE(98); /* cudaErrorInvalidDeviceFunction */
    DONE(cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, args, 0));
}
