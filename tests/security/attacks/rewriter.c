// rewriter fd ATTACHER | mapping TARGET: takes the spool of a running session from the attacher's descriptors, or from
// what the target has mapped, and rewrites it while the target's threads store records. Says "ready" when it has it.
// Commands, each answered by its first word:
//   layout COUNT  rewrites the words that describe the layout, and the heads of all chunks, in turn by each lie, until
//                 the target has claimed COUNT chunks meanwhile; says how often it rewrote all of it
//   control COUNT COUNT times all of page 0 but the words that a session is ended by; then these as well
//   quit
#include "../../c/kit.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

// As crates/between/record has them: `Head` and `ChunkHead`.
enum { HEAD = 4096, CHUNK = 65536, FREE = 0, OPEN = 1 };
enum { MAGIC = 0, VERSION = 8, HEAD_SIZE = 12, TOTAL_SIZE = 16, SETTINGS_AT = 24, SETTINGS_LEN = 32, CHUNKS_AT = 40 };
enum { CHUNK_COUNT = 48, SESSION = 56, DRAIN_MS = 64, LEASE_MS = 68, COMMAND = 72, STATE = 76, LEASE_TICK = 80, CLAIM = 96 };
enum { COMMITTED = 4, TID = 8, CLAIMED = 16 };

static uint8_t *spool;
static size_t size, chunks_at, chunk_count;
static const uint64_t lies[] = {0, 1, UINT64_MAX, 1ull << 40, 63, CHUNK, INT64_MAX, 1ull << 32, UINT32_MAX};
enum { LIES = sizeof lies / sizeof *lies };

static void word(size_t at, uint64_t value) { __atomic_store_n((uint64_t *)(spool + at), value, __ATOMIC_RELAXED); }
static void half(size_t at, uint64_t value) { __atomic_store_n((uint32_t *)(spool + at), (uint32_t)value, __ATOMIC_RELAXED); }

// Maps the spool that an entry of this directory of links leads to.
static void find_spool(const char *process, const char *list) {
  char path[512], to[512];
  snprintf(path, sizeof path, "/proc/%s/%s", process, list);
  DIR *dir = opendir(path);
  if (!dir) fail("%s: %m", path);
  for (struct dirent *entry; !spool && (entry = readdir(dir));) {
    snprintf(path, sizeof path, "/proc/%s/%s/%s", process, list, entry->d_name);
    ssize_t length = readlink(path, to, sizeof to - 1);
    if (length < 0) continue;
    to[length] = 0;
    if (strncmp(to, "/memfd:midair-spool", 19)) continue;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat)) fail("%s: %m", path);
    size = (size_t)stat.st_size;
    spool = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (spool == MAP_FAILED) fail("mmap: %m");
    close(fd);
  }
  closedir(dir);
  if (!spool) fail("%s has no spool", process);
  chunks_at = *(uint64_t *)(spool + CHUNKS_AT);
  chunk_count = *(uint64_t *)(spool + CHUNK_COUNT);
  if (size < HEAD || chunks_at < HEAD || chunk_count == 0 || chunks_at + chunk_count * CHUNK > size)
    fail("this is not the layout of a spool");
}

// Rewrites the layout and the chunks, and returns how many chunks were claimed since the last time.
static unsigned rewrite(uint64_t lie) {
  const size_t words[] = {MAGIC, TOTAL_SIZE, SETTINGS_AT, SETTINGS_LEN, CHUNKS_AT, CHUNK_COUNT, SESSION, CLAIM};
  unsigned claimed = 0;
  for (size_t n = 0; n < sizeof words / sizeof *words; n++) word(words[n], lie);
  half(VERSION, lie);
  half(HEAD_SIZE, lie);
  for (size_t n = 0; n < chunk_count; n++) {
    size_t at = chunks_at + n * CHUNK;
    claimed += __atomic_exchange_n((uint32_t *)(spool + at), FREE, __ATOMIC_RELAXED) == OPEN;
    half(at + COMMITTED, lie);
    half(at + TID, lie);
    word(at + CLAIMED, lie);
  }
  return claimed;
}

int main(int argc, char **argv) {
  char line[64];
  if (argc != 3) fail("usage: rewriter fd|mapping PID");
  find_spool(argv[2], strcmp(argv[1], "fd") ? "map_files" : "fd");
  say("ready");
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    unsigned number, seen = 0;
    unsigned long round = 0;
    if (sscanf(line, "layout %u", &number) == 1) {
      rewrite(lies[0]);
      while (seen < number) seen += rewrite(lies[++round % LIES]);
      say("layout %lu", round);
    } else if (sscanf(line, "control %u", &number) == 1) {
      for (; round < number; round++) {
        uint64_t lie = lies[round % LIES];
        rewrite(lie);
        half(DRAIN_MS, lie);
        for (size_t at = LEASE_TICK; at < HEAD; at += 8) word(at, lie);
        // The session's threads shall see it.
        sched_yield();
      }
      half(LEASE_MS, UINT32_MAX);
      half(STATE, UINT32_MAX);
      // Any other word than "detach" first, then this.
      half(COMMAND, UINT32_MAX);
      sched_yield();
      half(DRAIN_MS, 1000);
      half(COMMAND, 1);
      say("control %lu", round);
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  return 0;
}
