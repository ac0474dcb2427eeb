// kfd_samples: a stand-in for /dev/kfd, to be preloaded into a program whose GPU samples program counters (MODEL_SAMPLING).
// It answers the two requests by which tools ask what the driver offers: the version, and PC_SAMPLE's operation 0. The variable
// KFD_SAMPLES makes it another driver: old (interface 1.14), busy (a debugger is on the process), used (another process samples).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int device = -1;

typedef struct {
  uint64_t interval, least, most, flags;
  uint32_t method, unit;
} info_t;

typedef struct {
  uint64_t infos;
  uint32_t count, operation, gpu, id, flags, version;
} arguments_t;

static int is(const char *kind) {
  const char *wanted = getenv("KFD_SAMPLES");
  return wanted && !strcmp(wanted, kind);
}

int open(const char *path, int flags, ...) {
  static int (*next)(const char *, int, ...);
  va_list rest;
  va_start(rest, flags);
  int mode = va_arg(rest, int);
  va_end(rest);
  if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
  if (strcmp(path, "/dev/kfd")) return next(path, flags, mode);
  return device = memfd_create("kfd", MFD_CLOEXEC);
}

int open64(const char *path, int flags, ...) {
  static int (*next)(const char *, int, ...);
  va_list rest;
  va_start(rest, flags);
  int mode = va_arg(rest, int);
  va_end(rest);
  if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
  if (strcmp(path, "/dev/kfd")) return next(path, flags, mode);
  return device = memfd_create("kfd", MFD_CLOEXEC);
}

int ioctl(int fd, unsigned long request, ...) {
  static int (*next)(int, unsigned long, void *);
  va_list rest;
  va_start(rest, request);
  void *data = va_arg(rest, void *);
  va_end(rest);
  if (!next) next = (int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl");
  if (fd != device || fd < 0) return next(fd, request, data);
  if (request == 0x80084b01) {
    memcpy(data, (uint32_t[]){1, is("old") ? 14 : 16}, 8);
    return 0;
  }
  arguments_t *arguments = data;
  if (request != 0xc0204b85 || arguments->operation != 0 || arguments->gpu == 0) {
    errno = EINVAL;
    return -1;
  }
  if (is("busy")) {
    errno = EBUSY;
    return -1;
  }
  if (is("used") && !(arguments->flags & 1)) {
    arguments->count = 1;
    memcpy((void *)(uintptr_t)arguments->infos, &(info_t){50, 1, UINT32_MAX, 0, 1, 0}, sizeof(info_t));
    return 0;
  }
  const info_t offered[] = {{0, 1, UINT32_MAX, 0, 1, 0}, {0, 256, 1u << 31, 1, 2, 1}};
  uint32_t room = arguments->count;
  arguments->count = 2;
  if (arguments->infos && room >= 2) memcpy((void *)(uintptr_t)arguments->infos, offered, sizeof offered);
  return 0;
}
