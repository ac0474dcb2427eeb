// kfd_device: a stand-in for /dev/kfd, to be preloaded into the attaching side. It answers the three requests by which
// the dispatch log of a process is read (docs/sources.md#kfd); the logs are files that the modelled GPUs write
// (MODEL_FIRMWARE_LOG). From the environment:
//   SIM_KFD_LOGS=DIR        where they are: PID-NODE; the GPU of node N has the id N + 1
//   SIM_KFD_SLOTS=N         records of a ring, as the model has it (default 262144)
//   SIM_KFD_PROFILER=N      version of the profiler interface (default 6); 0: the driver has none
//   SIM_KFD_STREAM=N        version of the streams (default 4)
//   SIM_KFD_WITHOUT=ID      the GPU with this id has no log
//   SIM_KFD_OPEN=ERRNO      opening the device fails so
//   SIM_KFD_REFUSE=ERRNO    opening a log fails so
//   SIM_KFD_RECORD=BYTES    what it says of a record's size (default 20)
// As the driver, it shows a process to its own user only. The GPU's clock is the boot clock in steps of 10 ns.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 64 };
static int device = -1;
static struct {
  int fd;
  uint32_t gpu, pid;
} streams[MOST];
static int count;

static long number(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text ? strtol(text, NULL, 10) : otherwise;
}

static int (*next_ioctl(void))(int, unsigned long, void *) {
  static int (*next)(int, unsigned long, void *);
  if (!next) next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
  return next;
}

static int open_device(int flags) {
  (void)flags;
  long error = number("SIM_KFD_OPEN", 0);
  if (error) {
    errno = (int)error;
    return -1;
  }
  return device = memfd_create("kfd", MFD_CLOEXEC);
}

#define OPENER(name)                                                                          \
  int name(const char *path, int flags, ...) {                                                \
    va_list rest;                                                                             \
    va_start(rest, flags);                                                                    \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                   \
    va_end(rest);                                                                             \
    if (!strcmp(path, "/dev/kfd")) return open_device(flags);                                 \
    static int (*next)(const char *, int, mode_t);                                            \
    if (!next) next = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, #name);            \
    return next(path, flags, mode);                                                           \
  }
OPENER(open)
OPENER(open64)

static int fails(int error) {
  errno = error;
  return -1;
}

static int open_stream(uint32_t *body) {
  uint32_t gpu = body[1], pid = body[2];
  if (body[0] != 0 || body[3] != 1 || !gpu || body[4] % 80 || body[4] > 16 << 20) return fails(EINVAL);
  if (kill((pid_t)pid, 0) && errno == ESRCH) return fails(ESRCH);
  char path[512];
  struct stat info;
  snprintf(path, sizeof path, "/proc/%u", pid);
  if (stat(path, &info)) return fails(ESRCH);
  if (gpu == (uint32_t)number("SIM_KFD_WITHOUT", 0)) return fails(EOPNOTSUPP);
  int error = (int)number("SIM_KFD_REFUSE", 0);
  if (error) return fails(error);
  if (info.st_uid != getuid() && getuid() != 0) return fails(EPERM);
  snprintf(path, sizeof path, "%s/%u-%u", getenv("SIM_KFD_LOGS"), pid, gpu - 1);
  int version = (int)number("SIM_KFD_STREAM", 4);
  int fd = open64(path, (version == 3 ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd < 0) return fails(errno == ENOENT ? ESRCH : errno);
  if (count == MOST) return fails(ENOMEM);
  streams[count].fd = fd, streams[count].gpu = gpu, streams[count].pid = pid;
  count++;
  body[5] = (uint32_t)fd;
  return 0;
}

static int on_stream(int index, unsigned long request, uint64_t *words) {
  int version = (int)number("SIM_KFD_STREAM", 4);
  unsigned bytes = version == 3 ? 80 : version == 4 ? 72 : 96;
  if (request != (3UL << 30 | (unsigned long)bytes << 16 | 'K' << 8 | 0x88)) return fails(ENOTTY);
  uint64_t slots = (uint64_t)number("SIM_KFD_SLOTS", 262144), rings = 2 * slots * 20;
  if (words[0] != 0) return fails(EINVAL);
  words[1] = (uint64_t)version | (uint64_t)number("SIM_KFD_RECORD", 20) << 32;
  words[2] = 2 | slots << 32;
  words[3] = rings;
  words[4] = (rings + 32 + 4095) / 4096 * 4096;
  words[5] = 0;
  words[6] = rings;
  int at = 7;
  if (version == 3) words[at++] = rings + 16;
  words[at++] = streams[index].gpu | (uint64_t)streams[index].pid << 32;
  words[at] = 0x8000;
  return 0;
}

int ioctl(int fd, unsigned long request, ...) {
  va_list rest;
  va_start(rest, request);
  void *argument = va_arg(rest, void *);
  va_end(rest);
  for (int n = 0; n < count; n++)
    if (streams[n].fd == fd) return on_stream(n, request, argument);
  if (fd != device || fd < 0) return next_ioctl()(fd, request, argument);
  uint32_t *words = argument;
  switch (request) {
  case 0xc0284b05: {  // clock counters
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    uint64_t *clocks = argument, boot = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    clocks[0] = boot / 10, clocks[1] = boot, clocks[2] = boot, clocks[3] = 1000000000;
    return 0;
  }
  case 0xc0284b28:  // profiler
    if (!number("SIM_KFD_PROFILER", 6)) return fails(ENOTTY);
    if (words[1]) return fails(EINVAL);
    if (words[0] == 2) {
      words[2] = (uint32_t)number("SIM_KFD_PROFILER", 6);
      return 0;
    }
    return words[0] == 4 ? open_stream(words + 2) : fails(EINVAL);
  }
  return fails(ENOTTY);
}
