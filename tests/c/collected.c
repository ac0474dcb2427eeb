// collected [filter PROGRAM ...]: a program for `e2e/collector.rs` on the stand-in runtimes. With "filter" it becomes PROGRAM in a
// sandbox, whose filter of system calls allows all. Commands:
//   work N     N kernels, each waited for
//   children   "children E signals N": the errno of a wait for any child of any kind, and how often SIGCHLD came
//   fork       "fork PID": a child that waits to be killed, and has all descriptors of this process
//   sockets    closes all of this process's sockets, as a program does that closes what it does not know
//   become     executes a shell by the system call alone, which exits with 5 at the end of its input
//   quit       exits with 7
// Each answers with its name when it is done.
#include "kit.h"
#include "hip.h"
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define HIP(call)                                                                                  \
  do {                                                                                             \
    hipError_t error_ = (call);                                                                    \
    if (error_) fail("%s:%d %s: %s", __FILE__, __LINE__, #call, hipGetErrorString(error_));        \
  } while (0)

KERNEL(step, "_Z4stepPfi")

static atomic_uint signals;
static void on_child(int signal) {
  (void)signal;
  signals++;
}

static void close_sockets(void) {
  DIR *all = opendir("/proc/self/fd");
  for (struct dirent *entry; all && (entry = readdir(all));) {
    struct stat found;
    int fd = atoi(entry->d_name);
    if (fd > 2 && !fstat(fd, &found) && S_ISSOCK(found.st_mode)) close(fd);
  }
  if (all) closedir(all);
}

static void filter(void) {
  struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {1, &all};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
}

int main(int argc, char **argv) {
  if (argc > 2) {
    filter();
    execv(argv[2], argv + 2);
    fail("%s cannot be executed", argv[2]);
  }
  signal(SIGCHLD, on_child);
  hipStream_t stream;
  HIP(hipStreamCreate(&stream));
  say("ready");
  char line[64];
  unsigned count;
  while (hear(line, sizeof line)) {
    if (sscanf(line, "work %u", &count) == 1) {
      for (unsigned i = 0; i < count; i++) {
        HIP(hipLaunchKernel((void *)step, (dim3){10, 1, 1}, (dim3){64, 1, 1}, NULL, 0, stream));
        HIP(hipStreamSynchronize(stream));
      }
      say("work");
    } else if (!strcmp(line, "children")) {
      int error = waitpid(-1, NULL, WNOHANG | __WALL) < 0 ? errno : 0;
      say("children %s signals %u", error == ECHILD ? "none" : "some", signals);
    } else if (!strcmp(line, "fork")) {
      int child = fork();
      if (!child) {
        prctl(PR_SET_PDEATHSIG, 0);
        // The test reads the output of the process to its end.
        close(1);
        close(2);
        for (;;) pause();
      }
      say("fork %d", child);
    } else if (!strcmp(line, "sockets")) {
      close_sockets();
      say("sockets");
    } else if (!strcmp(line, "become")) {
      char *words[] = {"sh", "-c", "echo become; while read x; do :; done; exit 5", NULL}, *none[] = {NULL};
      syscall(SYS_execve, "/bin/sh", words, none);
      fail("execve");
    } else if (!strcmp(line, "quit")) {
      exit(7);
    }
  }
  return 1;
}
