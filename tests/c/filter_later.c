// filter_later: a library to preload. At SIGUSR2 all threads of the program come under a system
// call filter: FILTER is what happens to a call (hexadecimal SECCOMP_RET_*), then the numbers that
// may pass, each behind a comma.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter program[1024];
static unsigned length;

static void install(int signal) {
  (void)signal;
  struct sock_fprog all = {(unsigned short)length, program};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all)) _exit(6);
}

__attribute__((constructor)) static void begin(void) {
  char *words = getenv("FILTER");
  if (!words) return;
  program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  unsigned otherwise = (unsigned)strtoul(words, &words, 16);
  while (*words == ',' && length < 1000) {
    unsigned number = (unsigned)strtoul(words + 1, &words, 10);
    program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  struct sigaction action = {.sa_handler = install, .sa_flags = SA_RESTART};
  sigaction(SIGUSR2, &action, 0);
}
