// What the programs share that use HSA without HIP: agents, the code object, packets. The code
// object is hip_kit.h's; its vadd is the only kernel here.
#pragma once
#include "kit.h"
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <sys/stat.h>

#define HSA(call)                                                                      \
  do {                                                                                 \
    hsa_status_t status_ = (call);                                                     \
    const char *text_ = "";                                                            \
    if (status_ != HSA_STATUS_SUCCESS && status_ != HSA_STATUS_INFO_BREAK) {           \
      hsa_status_string(status_, &text_);                                              \
      fail("%s:%d %s: %s", __FILE__, __LINE__, #call, text_);                          \
    }                                                                                  \
  } while (0)

enum { QUEUE_SIZE = 256 };
static hsa_agent_t gpu, cpu;
static hsa_region_t kernarg_region;
static uint64_t kernel_object;
static uint32_t private_size, group_size;
static void *kernarg;

__attribute__((unused)) static hsa_status_t on_agent(hsa_agent_t agent, void *data) {
  (void)data;
  hsa_device_type_t type;
  HSA(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
  if (type == HSA_DEVICE_TYPE_GPU) gpu = agent;
  if (type == HSA_DEVICE_TYPE_CPU) cpu = agent;
  return HSA_STATUS_SUCCESS;
}

__attribute__((unused)) static hsa_status_t on_region(hsa_region_t region, void *data) {
  (void)data;
  hsa_region_segment_t segment;
  uint32_t flags;
  HSA(hsa_region_get_info(region, HSA_REGION_INFO_SEGMENT, &segment));
  HSA(hsa_region_get_info(region, HSA_REGION_INFO_GLOBAL_FLAGS, &flags));
  if (segment == HSA_REGION_SEGMENT_GLOBAL && (flags & HSA_REGION_GLOBAL_FLAG_KERNARG)) kernarg_region = region;
  return HSA_STATUS_SUCCESS;
}

// Finds the agents and memory for kernel arguments. After hsa_init.
__attribute__((unused)) static void find_agents(void) {
  HSA(hsa_iterate_agents(on_agent, NULL));
  if (!gpu.handle || !cpu.handle) fail("no GPU or no CPU agent");
  kernarg_region.handle = 0;
  HSA(hsa_agent_iterate_regions(cpu, on_region, NULL));
  if (!kernarg_region.handle) HSA(hsa_agent_iterate_regions(gpu, on_region, NULL));
  if (!kernarg_region.handle) fail("no region for kernel arguments");
  HSA(hsa_memory_allocate(kernarg_region, 4096, &kernarg));
  memset(kernarg, 0, 4096);
}

// Loads a code object whose kernel is called `name`.
__attribute__((unused)) static hsa_executable_t load_named(const char *path, const char *name) {
  struct stat info;
  FILE *file = fopen(path, "rb");
  if (!file || fstat(fileno(file), &info)) fail("cannot open %s", path);
  void *bytes = malloc(info.st_size);
  if (!bytes || fread(bytes, 1, info.st_size, file) != (size_t)info.st_size) fail("cannot read %s", path);
  fclose(file);
  hsa_code_object_reader_t reader;
  hsa_executable_t executable;
  hsa_executable_symbol_t symbol;
  HSA(hsa_code_object_reader_create_from_memory(bytes, info.st_size, &reader));
  HSA(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &executable));
  HSA(hsa_executable_load_agent_code_object(executable, gpu, reader, NULL, NULL));
  HSA(hsa_executable_freeze(executable, NULL));
  HSA(hsa_executable_get_symbol_by_name(executable, name, &gpu, &symbol));
  HSA(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &kernel_object));
  HSA(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &private_size));
  HSA(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &group_size));
  // The bytes stay for as long as the process.
  return executable;
}

__attribute__((unused)) static hsa_executable_t load(const char *path) {
  return load_named(path, "_Z4vaddPKfS0_Pfi.kd");
}

__attribute__((unused)) static hsa_signal_t new_signal(hsa_signal_value_t value) {
  hsa_signal_t signal;
  HSA(hsa_signal_create(value, 0, NULL, &signal));
  return signal;
}

__attribute__((unused)) static void wait_for_zero(hsa_signal_t signal) {
  while (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) != 0) {}
}

// Takes an index and waits until its slot is free.
__attribute__((unused)) static uint64_t take(hsa_queue_t *queue) {
  uint64_t index = hsa_queue_add_write_index_scacq_screl(queue, 1);
  while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) sched_yield();
  return index;
}

// Publishes a packet: everything but the header first, then header and setup in one store, then the doorbell.
__attribute__((unused)) static void publish(hsa_queue_t *queue, uint64_t index, const void *packet) {
  char *slot = (char *)queue->base_address + 64 * (index % queue->size);
  memcpy(slot + 4, (const char *)packet + 4, 60);
  uint32_t first;
  memcpy(&first, packet, 4);
  __atomic_store_n((uint32_t *)slot, first, __ATOMIC_RELEASE);
  hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)index);
}

__attribute__((unused)) static uint16_t header(int type) {
  return (uint16_t)(type << HSA_PACKET_HEADER_TYPE | HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                    HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE);
}

__attribute__((unused)) static void dispatch(hsa_queue_t *queue, uint32_t grid, hsa_signal_t signal) {
  hsa_kernel_dispatch_packet_t packet = {
      .header = header(HSA_PACKET_TYPE_KERNEL_DISPATCH),
      .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
      .workgroup_size_x = 64, .workgroup_size_y = 1, .workgroup_size_z = 1,
      .grid_size_x = grid, .grid_size_y = 1, .grid_size_z = 1,
      .private_segment_size = private_size, .group_segment_size = group_size,
      .kernel_object = kernel_object, .kernarg_address = kernarg, .completion_signal = signal,
  };
  publish(queue, take(queue), &packet);
}

__attribute__((unused)) static hsa_queue_t *new_queue(void) {
  hsa_queue_t *queue;
  HSA(hsa_queue_create(gpu, QUEUE_SIZE, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
  return queue;
}
