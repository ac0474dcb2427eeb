/* borrow PID LIBRARY: a stand-in of ours for the way in that wprof has (docs/sources.md#wprof): no code of it, the same steps.
 *
 * The process's first thread alone is seized; it is led to its next system call, which is called off; mmap and mprotect are called in
 * its name; `call *%rax; int3` goes into the new pages; dlopen runs on that thread, wherever it stood; then the system call is made
 * anew. Nothing is looked at before: neither locks, nor signals, nor stacks.
 *
 * One line: "in NANOSECONDS", or "failed WHY". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define RED_ZONE 128

static pid_t pid;

static int failed(const char *what) {
    printf("failed %s: %s\n", what, strerror(errno));
    return 1;
}

/* Where a process has the beginning of its libc, and which file that is. */
static unsigned long libc_of(const char *maps, char *file, size_t size) {
    char line[4096], path[3072], device[16];
    unsigned long start, inode, found = 0;
    FILE *lines = fopen(maps, "r");
    if (!lines) return 0;
    while (!found && fgets(line, sizeof line, lines)) {
        if (sscanf(line, "%lx-%*x %*s 00000000 %15s %lu %3071s", &start, device, &inode, path) != 4) continue;
        const char *name = strrchr(path, '/');
        if (!name || strcmp(name, "/libc.so.6")) continue;
        snprintf(file, size, "%s %lu", device, inode);
        found = start;
    }
    fclose(lines);
    return found;
}

/* Goes on until the next stop that is wanted; signals for the program are passed on. */
static int wait_for(int wanted_event, int wanted_signal) {
    for (;;) {
        int status;
        if (waitpid(pid, &status, __WALL) != pid) return -1;
        if (!WIFSTOPPED(status)) {
            errno = ESRCH;
            return -1;
        }
        int event = status >> 16;
        if (event == wanted_event && (WSTOPSIG(status) == wanted_signal || (event && wanted_event))) return 0;
        /* A stop of the whole program, or one of ours that comes late. */
        int deliver = event ? 0 : WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
        if (ptrace(wanted_signal == (SIGTRAP | 0x80) ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, deliver)) return -1;
    }
}

static int to_system_call(void) { return ptrace(PTRACE_SYSCALL, pid, 0, 0) || wait_for(0, SIGTRAP | 0x80); }

static long system_call(const struct user_regs_struct *at, long number, long a, long b, long c, long d, long e, long f) {
    struct user_regs_struct registers = *at;
    registers.rax = number;
    registers.rdi = a, registers.rsi = b, registers.rdx = c, registers.r10 = d, registers.r8 = e, registers.r9 = f;
    if (ptrace(PTRACE_SETREGS, pid, 0, &registers) || to_system_call() || to_system_call() || ptrace(PTRACE_GETREGS, pid, 0, &registers)) return -1;
    if ((long)registers.rax < 0 && (long)registers.rax > -4096) {
        errno = -(int)registers.rax;
        return -1;
    }
    return registers.rax;
}

static int put(unsigned long to, const void *from, size_t size) {
    struct iovec here = {(void *)from, size}, there = {(void *)to, size};
    return process_vm_writev(pid, &here, 1, &there, 1, 0) == (ssize_t)size ? 0 : -1;
}

int main(int number, char **word) {
    struct timespec begin, end;
    char mine[64] = "", theirs[64] = "", maps[64];
    if (number != 3) return 2;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pid = atoi(word[1]);
    snprintf(maps, sizeof maps, "/proc/%d/maps", pid);
    unsigned long own = libc_of("/proc/self/maps", mine, sizeof mine), base = libc_of(maps, theirs, sizeof theirs);
    unsigned long open_at = (unsigned long)dlsym(RTLD_DEFAULT, "dlopen");
    errno = ENOENT;
    if (!own || !base || strcmp(mine, theirs) || open_at < own) return failed("it has not the libc of this program");
    if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD)) return failed("ptrace");
    if (ptrace(PTRACE_INTERRUPT, pid, 0, 0) || wait_for(PTRACE_EVENT_STOP, SIGTRAP)) return failed("it did not stop");
    /* As long as it makes no system call, this waits. */
    struct user_regs_struct before, registers;
    if (to_system_call() || ptrace(PTRACE_GETREGS, pid, 0, &before)) return failed("no system call came");
    before.rax = before.orig_rax;
    before.orig_rax = -1;
    if (ptrace(PTRACE_SETREGS, pid, 0, &before) || to_system_call()) return failed("the system call was not called off");
    before.rip -= 2;
    long pages = system_call(&before, SYS_mmap, 0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == -1) return failed("mmap");
    static const unsigned char call[] = {0xff, 0xd0, 0xcc};
    if (put(pages, word[2], strlen(word[2]) + 1) || put(pages + PAGE, call, sizeof call)) return failed("writing");
    if (system_call(&before, SYS_mprotect, pages + PAGE, PAGE, PROT_READ | PROT_EXEC, 0, 0, 0)) return failed("mprotect");
    registers = before;
    registers.rip = pages + PAGE;
    registers.rax = base + (open_at - own);
    registers.rdi = pages;
    registers.rsi = RTLD_NOW;
    registers.rsp = ((registers.rsp - RED_ZONE) & ~15ul) - RED_ZONE;
    registers.orig_rax = -1;
    if (ptrace(PTRACE_SETREGS, pid, 0, &registers) || ptrace(PTRACE_CONT, pid, 0, 0) || wait_for(0, SIGTRAP) || ptrace(PTRACE_GETREGS, pid, 0, &registers))
        return failed("dlopen did not come back");
    unsigned long handle = registers.rax;
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (system_call(&before, SYS_munmap, pages, 2 * PAGE, 0, 0, 0, 0)) return failed("munmap");
    /* The system call that was called off: it is begun anew, and not waited for. */
    if (ptrace(PTRACE_SETREGS, pid, 0, &before) || to_system_call() || ptrace(PTRACE_DETACH, pid, 0, 0)) return failed("letting go");
    if (!handle) {
        errno = 0;
        return failed("dlopen gave nothing");
    }
    printf("in %ld\n", (end.tv_sec - begin.tv_sec) * 1000000000 + (end.tv_nsec - begin.tv_nsec));
    return 0;
}
