// namesake PID NUMBER ROOT USER: a process of USER with this NUMBER in the pid namespace of process PID, whose root is
// ROOT. It says "ready" and ends with its input.
#define _GNU_SOURCE
#include <linux/sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "../../c/kit.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>

int main(int argc, char **argv) {
  if (argc != 5) fail("usage: namesake PID NUMBER ROOT USER");
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/ns/pid", argv[1]);
  int namespace = open(path, O_RDONLY | O_CLOEXEC);
  if (namespace < 0 || setns(namespace, CLONE_NEWPID)) fail("%s: %s", path, strerror(errno));
  pid_t number = atoi(argv[2]);
  struct clone_args how = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
  long pid = syscall(SYS_clone3, &how, sizeof how);
  if (pid < 0) fail("the number %d: %s", number, strerror(errno));
  if (pid > 0) {
    int status = 0;
    while (waitpid((pid_t)pid, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  id_t user = (id_t)atoi(argv[4]);
  if (chroot(argv[3]) || chdir("/") || setgid(user) || setuid(user)) fail("%s: %s", argv[3], strerror(errno));
  say("ready");
  char line[64];
  while (hear(line, sizeof line)) continue;
  return 0;
}
