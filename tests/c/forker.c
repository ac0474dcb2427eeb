// forker KERNELS: a thread launches vadd with 3 blocks all the time; on "fork COUNT" the main
// thread forks COUNT children, one after another, each of which calls HIP functions that need no
// device work, and answers "fork COUNT" when all ended well; on "spare" it forks one child that
// stays and says "child PID" (it ends on "release"). "quit" ends. A child that does not end within
// 20 s is ended by SIGALRM, which counts as a failure.
#include "hip_kit.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static kernels_t kernels;
static work_t work;
static atomic_bool stop;

static void *launch(void *argument) {
  (void)argument;
  while (!atomic_load(&stop)) {
    launch_vadd(&kernels, &work, 3);
    if (work.vadds % 16 == 0) HIP(hipStreamSynchronize(work.stream));
    usleep(2000);
  }
  HIP(hipStreamSynchronize(work.stream));
  return NULL;
}

// Forks; a machine that is short of memory or processes for a short time gets a second.
static pid_t new_child(void) {
  for (int tries = 0;; tries++) {
    pid_t child = fork();
    if (child >= 0) return child;
    if (tries == 50 || (errno != EAGAIN && errno != ENOMEM)) fail("fork: %s", strerror(errno));
    usleep(20000);
  }
}

// Exit code of a child: which call failed.
static int child_calls(void) {
  int version = 0, devices = 0, driver = 0;
  if (hipRuntimeGetVersion(&version) != hipSuccess || version < 60000000) return 2;
  if (hipGetDeviceCount(&devices) != hipSuccess || devices != 1) return 3;
  if (hipDriverGetVersion(&driver) != hipSuccess) return 4;
  if (!hipGetErrorString(hipErrorInvalidValue)) return 5;
  if (hipGetLastError() != hipSuccess) return 6;
  return 0;
}

static void reap(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) fail("waitpid failed");
  if (WIFSIGNALED(status)) fail("child %d was ended by signal %d", child, WTERMSIG(status));
  if (WEXITSTATUS(status)) fail("child %d: call %d failed", child, WEXITSTATUS(status));
}

int main(int argc, char **argv) {
  if (argc < 2) fail("usage: forker KERNELS");
  kernels = load_kernels(argv[1]);
  work = new_work();
  pthread_t thread = start_thread(launch, NULL);
  say("ready");
  char line[64];
  unsigned number;
  pid_t spare = 0;
  int pipes[2];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "fork %u", &number) == 1) {
      for (unsigned n = 0; n < number; n++) {
        pid_t child = new_child();
        if (child == 0) {
          alarm(20);
          _exit(child_calls());
        }
        reap(child);
      }
      say("fork %u", number);
    } else if (!strcmp(line, "spare")) {
      if (spare || pipe(pipes)) fail("a spare child is there already, or no pipe");
      spare = new_child();
      if (spare == 0) {
        char byte;
        close(pipes[1]);
        // Ends when the parent lets go of the pipe, or ends.
        while (read(pipes[0], &byte, 1) > 0) {}
        _exit(child_calls());
      }
      close(pipes[0]);
      say("child %d", spare);
    } else if (!strcmp(line, "release")) {
      if (!spare) fail("no spare child");
      close(pipes[1]);
      reap(spare);
      spare = 0;
      say("release");
    } else {
      fail("unknown command \"%s\"", line);
    }
  }
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
  say("forker %u vadd %lu grid %u", 0u, work.vadds, 3 * 64);
  end_work(&work);
  say("done");
  return 0;
}
