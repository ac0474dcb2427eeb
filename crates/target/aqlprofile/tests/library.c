/* A library whose packets are two words to start, one address to read and one word to stop. -D options
 * select how it misbehaves. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { uint32_t instance, event, flags, block; } event;
typedef struct { uint64_t agent; const event *events; uint32_t count; } profile;
typedef struct { const char *name; uint32_t id, instances; } block;
typedef struct { uint32_t w[16]; } packet;
typedef struct { packet start, stop, read; } packets;
#ifdef PROBE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
/* Whether a file of another process of the user can be opened. */
static int of_neighbour(const char *name) {
  char pid[32] = "", path[128];
  int listed = open("/neighbour", O_RDONLY);
  if (read(listed, pid, sizeof pid - 1) < 1) return 1;
  close(listed);
  snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
  int descriptor = open(path, O_RDONLY);
  if (descriptor >= 0) close(descriptor);
  return descriptor >= 0;
}
/* Returns a bit for each thing that works and must not. */
static int probe(void) {
  int can = 0, files = 0;
  char text[4096] = "";
  int descriptor = open("/written", O_WRONLY | O_CREAT, 0666);
  can |= (descriptor >= 0) << 0;
  can |= (open("/app", O_RDONLY | O_TMPFILE, 0666) >= 0) << 1;
  can |= (open("/device", O_RDONLY) >= 0) << 2;
  can |= (open("/secret", O_RDONLY) >= 0) << 3;
  can |= (kill(getppid(), 0) == 0) << 4;
  can |= (socket(AF_UNIX, SOCK_STREAM, 0) >= 0) << 5;
  can |= (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0) << 6;
  can |= (prctl(PR_SET_DUMPABLE, 1) == 0) << 7;
  can |= (fcntl(0, F_SETOWN, 1) == 0) << 8;
  can |= (execl("/app/midair", "midair", (char *)0) != -1 || errno != ENOSYS) << 9;
  can |= (access("/own", R_OK) || access("/group", R_OK)) << 10;
  /* The loader's own file is the first that it opens here. */
  descriptor = open("/listed", O_RDONLY);
  for (int at = 0; at < 64; at++) files += fcntl(at, F_GETFD) >= 0;
  /* Three, the copy for answers, and /listed. */
  can |= (descriptor < 0 || files != 5) << 11;
  can |= (read(descriptor, text, sizeof text - 1) != 7) << 12;
  can |= (syscall(SYS_chroot, "/app") == 0) << 13;
  can |= (open("/other", O_RDONLY) < 0) << 14;
  can |= of_neighbour("root/dev/null") << 15;
  can |= of_neighbour("environ") << 16;
  can |= of_neighbour("fd/0") << 17;
  can |= !of_neighbour("stat") << 18;
  struct rlimit dump = {0, 0};
  getrlimit(RLIMIT_CORE, &dump);
  can |= (dump.rlim_max != 1) << 19;
  descriptor = open("/proc/self/oom_score_adj", O_RDONLY);
  can |= (read(descriptor, text, sizeof text) != 5 || strncmp(text, "1000", 4)) << 20;
  return can;
}
#endif
static event seen;
static uint64_t *output;
int aqlprofile_register_agent_info(uint64_t *agent, const void *info, int version) {
  (void)info;
  puts("a library that talks");
  fflush(stdout);
#ifdef CRASH
  abort();
#endif
#ifdef HANG
  for (;;) sleep(100);
#endif
#ifdef PROBE
  int can = probe();
  if (can) return can;
#endif
  *agent = 1;
  return version == 2 ? 0 : 7;
}
int aqlprofile_get_pmc_info(const profile *of, int what, void *to) {
  block *b = to;
  (void)of;
  if (what != 5 || strcmp(b->name, "SQ")) return 0x1001;
  b->id = 6, b->instances = 1;
  return 0;
}
static void point(packet *p, uint32_t *words, uint32_t count) {
  p->w[2] = (uint32_t)(uintptr_t)words, p->w[3] = (uint32_t)((uintptr_t)words >> 32), p->w[4] = count;
}
int aqlprofile_pmc_create_packets(uint64_t *handle, packets *made, profile of, int (*get)(void **, size_t, uint32_t, void *),
    void (*put)(void *, void *), int (*copy)(void *, const void *, size_t, void *), void *data) {
  uint32_t *commands, words[6] = {0x11, 0x22, 0x33, 0, 0, 0x44};
  (void)put;
  if (of.count > 8) return 0x1000;
  seen = of.events[0];
  if (get((void **)&output, 64, 0xb, data) || get((void **)&commands, sizeof words, 0x13, data)) return 0x1008;
  uint64_t at = (uintptr_t)(output + 2);
#ifdef ODD
  words[0] = (uint32_t)at;
#endif
  words[3] = (uint32_t)at, words[4] = (uint32_t)(at >> 32);
  if (copy(commands, words, sizeof words, data)) return 0x1008;
  point(&made->start, commands, 2), point(&made->read, commands + 2, 3), point(&made->stop, commands + 5, 1);
  *handle = 5;
  return 0;
}
void aqlprofile_pmc_delete_packets(uint64_t handle) { (void)handle; }
int aqlprofile_pmc_iterate_data(uint64_t handle, int (*on)(event, uint64_t, uint64_t, void *), void *data) {
  return handle == 5 ? on(seen, 3, output[2], data) : 9;
}
int aqlprofile_iterate_event_coord(uint64_t agent, event of, uint64_t sample,
    int (*on)(int, int, int, int, const char *, void *), void *data) {
  (void)agent, (void)of;
  return on(0, 2, 8, (int)sample, "SE", data);
}
