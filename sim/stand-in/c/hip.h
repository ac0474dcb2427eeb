/* The part of HIP's C interface that programs for the stand-in use; types and numbers as AMD's headers have them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef struct hip_stream *hipStream_t;
typedef struct hip_event *hipEvent_t;
typedef struct {
    uint32_t x, y, z;
} dim3;
enum { hipMemcpyHostToDevice = 1, hipMemcpyDeviceToHost = 2, hipMemcpyDeviceToDevice = 3, hipMemcpyDefault = 4 };

hipError_t hipGetDeviceCount(int *count);
hipError_t hipSetDevice(int device);
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags);
hipError_t hipDeviceSynchronize(void);
hipError_t hipMalloc(void **at, size_t bytes);
hipError_t hipHostMalloc(void **at, size_t bytes, unsigned flags);
hipError_t hipFree(void *at);
hipError_t hipHostFree(void *at);
hipError_t hipMemset(void *at, int value, size_t bytes);
hipError_t hipMemsetAsync(void *at, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemcpy(void *to, const void *from, size_t bytes, int kind);
hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, hipStream_t stream);
hipError_t hipMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes);
hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, hipStream_t stream);
hipError_t hipStreamCreate(hipStream_t *stream);
hipError_t hipStreamDestroy(hipStream_t stream);
hipError_t hipStreamSynchronize(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags);
hipError_t hipEventCreate(hipEvent_t *event);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventSynchronize(hipEvent_t event);
hipError_t hipEventElapsedTime(float *ms, hipEvent_t from, hipEvent_t to);
hipError_t hipEventDestroy(hipEvent_t event);
hipError_t hipLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream);
const char *hipGetErrorString(hipError_t error);

void **__hipRegisterFatBinary(const void *wrapper);
void __hipRegisterFunction(void **modules, const void *host, char *device, const char *name, unsigned limit, void *tid,
                           void *bid, void *block, void *grid, int *size);

/* A kernel: a host function that stands for it, registered under its device name before main, as hipcc's output does it. */
#define KERNEL(host, device_name)                                                                                              \
    static void host(void) {}                                                                                                  \
    __attribute__((constructor)) static void register_##host(void) {                                                           \
        static const struct {                                                                                                  \
            uint32_t magic, version;                                                                                           \
            const void *binary, *unused;                                                                                       \
        } wrapper = {0x48495046, 1, 0, 0};                                                                                     \
        __hipRegisterFunction(__hipRegisterFatBinary(&wrapper), (const void *)host, (char *)device_name, device_name, -1u, 0, \
                              0, 0, 0, 0);                                                                                     \
    }
