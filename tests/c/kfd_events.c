// kfd_events: a stand-in for /dev/kfd, to be preloaded into a program: events of the kernel driver as
// its lines of text (docs/sources.md#kfd). The program says what happens: kfd_happens(GPU, LINE) gives
// a line to whoever reads that GPU's events and asked for that event, as the driver does. Each
// descriptor is one end of a pair of sockets. kfd_readers() says how many there are.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int device = -1;
static struct { int ours; uint32_t gpu; uint64_t mask; } readers[MOST];
static int count;

int open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, int) : 0;
  va_end(args);
  if (strcmp(path, "/dev/kfd")) return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
  if (getenv("SIM_KFD_OPEN")) {
    errno = atoi(getenv("SIM_KFD_OPEN"));
    return -1;
  }
  return device = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
}

int ioctl(int fd, unsigned long request, ...) {
  va_list args;
  va_start(args, request);
  uint32_t *words = va_arg(args, void *);
  va_end(args);
  if (fd != device || request != 0xc0084b1ful) return (int)syscall(SYS_ioctl, fd, request, words);
  int pair[2];
  pthread_mutex_lock(&lock);
  int failed = count == MOST || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair);
  if (!failed) {
    readers[count].ours = pair[0];
    readers[count].gpu = words[0];
    readers[count++].mask = 0;
    words[1] = (uint32_t)pair[1];
  }
  pthread_mutex_unlock(&lock);
  return failed ? -1 : 0;
}

// Readers whose other end is there, with the masks that they wrote.
static int look(void) {
  int there = 0;
  for (int n = 0; n < count; n++) {
    uint64_t mask;
    ssize_t got = readers[n].ours < 0 ? 0 : recv(readers[n].ours, &mask, sizeof mask, MSG_DONTWAIT);
    if (got == sizeof mask) readers[n].mask = mask;
    if (got == 0 && readers[n].ours >= 0) {
      close(readers[n].ours);
      readers[n].ours = -1;
    }
    there += readers[n].ours >= 0;
  }
  return there;
}

__attribute__((visibility("default"))) int kfd_readers(void) {
  pthread_mutex_lock(&lock);
  int there = look();
  pthread_mutex_unlock(&lock);
  return there;
}

__attribute__((visibility("default"))) int kfd_happens(uint32_t gpu, const char *line) {
  unsigned long event = strtoul(line, NULL, 16);
  int told = 0;
  pthread_mutex_lock(&lock);
  look();
  for (int n = 0; n < count; n++)
    if (readers[n].ours >= 0 && readers[n].gpu == gpu && readers[n].mask >> (event - 1) & 1)
      told += send(readers[n].ours, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)strlen(line);
  pthread_mutex_unlock(&lock);
  return told;
}
