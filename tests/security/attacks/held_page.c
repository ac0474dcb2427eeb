// held_page: a process that holds up whoever reads its memory or closes its files. Arguments: how, a GPU runtime's library, a
// directory, a user, the version of boot blocks.
//   fuse       a page of a file of a file system of ours, which never answers a read
//   unmounted  the same, unmounted since: no list of mounts has it
//   swapped    the same, but for a part of the time there is anonymous memory in its place
//   fault      a page whose faults no process serves (userfaultfd)
//   late       the same, from the moment at which the worker thread is woken
//   closed     the worker thread names a file of ours as its attacher's socket: who closes it gets no answer
//   exchanged  the same, where the file and a socket take turns
//   received   such a file, in the place of the socket from which a thread receives
// In the first four, the page ends where a futex word begins on which a thread called midair-worker waits: that is where the worker thread of an earlier
// session would have its boot block. Started as root, which mounts; then it is that user's. Says "ready", and ends with its input,
// of which each line makes the worker thread park again.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, ROOT = 1, FILE_NODE = 2 };

static void need(int good, const char *what) {
  if (!good) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
  }
}

static void attributes(struct fuse_attr *attr, uint64_t node) {
  memset(attr, 0, sizeof *attr);
  attr->ino = node;
  attr->size = node == ROOT ? 0 : PAGE;
  attr->mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0755;
  attr->nlink = 1;
  attr->blksize = PAGE;
}

// Serves a directory with one file, of which nothing can be read. Only `owner` may close it.
static void serve(int device, pid_t owner) {
  static char request[1 << 17];
  char path[64];
  for (;;) {
    ssize_t got = read(device, request, sizeof request);
    if (got < 0 && errno == ENODEV) _exit(0);
    if (got < (ssize_t)sizeof(struct fuse_in_header)) continue;
    struct fuse_in_header *in = (struct fuse_in_header *)request;
    struct {
      struct fuse_out_header head;
      union {
        struct fuse_init_out init;
        struct fuse_entry_out entry;
        struct fuse_attr_out attr;
        struct fuse_open_out open;
      };
    } out;
    memset(&out, 0, sizeof out);
    size_t length = 0;
    switch (in->opcode) {
      case FUSE_INIT:
        out.init.major = FUSE_KERNEL_VERSION;
        out.init.minor = 31;
        out.init.max_write = PAGE;
        length = sizeof out.init;
        break;
      case FUSE_LOOKUP:
        out.entry.nodeid = FILE_NODE;
        out.entry.entry_valid = out.entry.attr_valid = 3600;
        attributes(&out.entry.attr, FILE_NODE);
        length = sizeof out.entry;
        break;
      case FUSE_GETATTR:
        out.attr.attr_valid = 3600;
        attributes(&out.attr.attr, in->nodeid);
        length = sizeof out.attr;
        break;
      case FUSE_OPEN:
        length = sizeof out.open;
        break;
      case FUSE_READ:
      case FUSE_STATFS:
      case FUSE_FORGET:
      case FUSE_BATCH_FORGET:
        continue;
      case FUSE_FLUSH:
        snprintf(path, sizeof path, "/proc/%d/task/%d", owner, in->pid);
        if (access(path, F_OK) != 0) continue;
        break;
      case FUSE_RELEASE:
        break;
      default:
        out.head.error = -ENOSYS;
    }
    out.head.unique = in->unique;
    out.head.len = sizeof out.head + length;
    if (write(device, &out, out.head.len) < 0 && errno == ENODEV) _exit(0);
  }
}

// The file of the page that never comes.
static int held_file;

static void open_fuse(const char *directory, uid_t user) {
  need(unshare(CLONE_NEWNS) == 0, "a mount namespace");
  need(mount("", "/", "", MS_REC | MS_PRIVATE, "") == 0, "private mounts");
  int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  need(device >= 0, "/dev/fuse");
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
  need(mount("held", directory, "fuse", MS_NOSUID | MS_NODEV, options) == 0, "mounting");
  pid_t owner = getpid(), server = fork();
  need(server >= 0, "a server");
  if (server == 0) {
    // As the user: the user's process could not end it otherwise.
    need(setresuid(user, user, user) == 0, "a server of that user");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve(device, owner);
  }
  close(device);
  char path[4096];
  snprintf(path, sizeof path, "%s/page", directory);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  need(file >= 0, path);
  held_file = file;
}

static void map_fuse(char *at) {
  need(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, held_file, 0) == at, "mapping its page");
}

static int faults;

static void open_faults(void) {
  faults = syscall(SYS_userfaultfd, O_CLOEXEC);
  need(faults >= 0, "userfaultfd");
  struct uffdio_api api = {.api = UFFD_API};
  need(ioctl(faults, UFFDIO_API, &api) == 0, "its interface");
}

static void map_fault(char *at) {
  struct uffdio_register range = {.range = {(uintptr_t)at, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  need(ioctl(faults, UFFDIO_REGISTER, &range) == 0, "its range");
}

// The head of a boot block (crates/between/record/src/boot.rs).
enum { OPEN = 2, PARKED = 4 };
typedef struct {
  char magic[8];
  uint32_t version, mailbox;
  int32_t near, far;
  uint32_t tid;
} block_t;

static block_t *block;
static int late;

// A worker thread that an earlier session seems to have left.
static void *pretend(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "midair-worker");
  block->tid = gettid();
  for (;;) {
    while (__atomic_load_n(&block->mailbox, __ATOMIC_ACQUIRE) == PARKED) syscall(SYS_futex, &block->mailbox, FUTEX_WAIT, PARKED, NULL, NULL, 0);
    if (late) {
      map_fault((char *)block);
      need(madvise(block, PAGE, MADV_DONTNEED) == 0, "dropping the page");
      for (;;) pause();
    }
    __atomic_store_n(&block->mailbox, OPEN, __ATOMIC_RELEASE);
    while (__atomic_load_n(&block->mailbox, __ATOMIC_ACQUIRE) != PARKED) syscall(SYS_futex, &block->mailbox, FUTEX_WAIT, OPEN, NULL, NULL, 0);
  }
  return NULL;
}

static int sockets[2];

// Puts the file and a socket in each other's place, without end.
static void *exchange(void *unused) {
  (void)unused;
  for (;;) {
    need(dup2(held_file, block->far) >= 0, "the file");
    need(dup2(sockets[0], block->far) >= 0, "the socket");
  }
  return NULL;
}

static volatile pid_t receiver;

static void *receive(void *unused) {
  (void)unused;
  receiver = gettid();
  char byte;
  recv(sockets[0], &byte, 1, 0);
  return NULL;
}

static uint32_t *word;
static volatile pid_t waiter;

static void *wait_for_ever(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "midair-worker");
  waiter = gettid();
  while (*word == 0) syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
  return NULL;
}

// Puts one in the other's place, without end: whoever checks what is there and then reads it may find the other one.
static void *swap(void *at) {
  for (;;) {
    int flags = MAP_PRIVATE | MAP_FIXED;
    need(mmap(at, PAGE, PROT_READ, flags | MAP_ANONYMOUS, -1, 0) == at, "anonymous memory");
    usleep(2000);
    need(mmap(at, PAGE, PROT_READ, flags, held_file, 0) == at, "the page");
    usleep(2000);
  }
  return NULL;
}

// Waits until that thread is in a system call.
static void until_in(volatile pid_t *tid, int number) {
  char path[64], call[8], wanted[8];
  int length = snprintf(wanted, sizeof wanted, "%d ", number);
  do {
    sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", *tid);
    int file = open(path, O_RDONLY);
    ssize_t got = file < 0 ? -1 : read(file, call, length);
    if (file >= 0) close(file);
    call[got < 0 ? 0 : got] = 0;
  } while (strcmp(call, wanted) != 0);
}

int main(int count, char **words) {
  need(count == 6, "usage: held_page HOW LIBRARY DIRECTORY USER VERSION");
  const char *how = words[1];
  char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  need(pages != MAP_FAILED, "two pages");
  word = (uint32_t *)(pages + PAGE);
  *word = 0;
  uid_t user = atoi(words[4]);
  late = strcmp(how, "late") == 0;
  int page = strcmp(how, "fuse") == 0 || strcmp(how, "unmounted") == 0 || strcmp(how, "swapped") == 0;
  int receives = strcmp(how, "received") == 0;
  if (late || strcmp(how, "fault") == 0)
    open_faults();
  else
    open_fuse(words[3], user);
  if (strcmp(how, "fault") == 0) map_fault(pages);
  if (page) map_fuse(pages);
  if (strcmp(how, "unmounted") == 0) need(umount2(words[3], MNT_DETACH) == 0, "unmounting");
  need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "a pair of sockets");
  need(setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0, "being that user");
  prctl(PR_SET_DUMPABLE, 1);
  // Where there is Yama: whoever else may trace it does not need capabilities for it.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  need(dlopen(words[2], RTLD_NOW) != NULL, "the library");
  pthread_t thread;
  if (strcmp(how, "swapped") == 0) need(pthread_create(&thread, NULL, swap, pages) == 0, "a thread that swaps");
  if (page || strcmp(how, "fault") == 0) {
    need(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0, "a thread");
    until_in(&waiter, SYS_futex);
  } else if (receives) {
    need(pthread_create(&thread, NULL, receive, NULL) == 0, "a thread");
    until_in(&receiver, SYS_recvfrom);
    need(dup2(held_file, sockets[0]) >= 0, "the file in the place of the socket");
  } else {
    block = (block_t *)pages;
    memcpy(block->magic, "midair\0B", sizeof block->magic);
    block->version = atoi(words[5]);
    block->mailbox = PARKED;
    block->far = dup(held_file);
    need(pthread_create(&thread, NULL, pretend, NULL) == 0, "a thread");
    until_in((volatile pid_t *)&block->tid, SYS_futex);
    if (strcmp(how, "exchanged") == 0) need(pthread_create(&thread, NULL, exchange, NULL) == 0, "a thread that exchanges");
  }
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {
    if (!block || late) continue;
    __atomic_store_n(&block->mailbox, PARKED, __ATOMIC_RELEASE);
    syscall(SYS_futex, &block->mailbox, FUTEX_WAKE, 1, NULL, NULL, 0);
    until_in((volatile pid_t *)&block->tid, SYS_futex);
    puts("parked");
    fflush(stdout);
  }
  // The server of the page ends with this process, and all who wait for it with the server.
  _exit(0);
}
