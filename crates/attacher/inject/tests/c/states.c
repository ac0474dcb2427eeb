/* A process in a difficult state. Each kind waits in read and answers "check" with "checked WRONG".
 *
 *   states trap-pending   SIGTRAP handled, blocked, and one is pending: its handler must run once, when it is opened
 *   states trap-handled   SIGTRAP handled
 *   states trap-ignored   SIGTRAP ignored
 *   states alarms         1000 SIGALRM and SIGPROF a second, whose handler allocates
 *   states flood          a child sends queued real-time signals; each must be handled
 *   states units          x87 stack and control word, rounding, direction flag and alternative stack are kept in the call
 *   states small          the only other thread has a stack of 16 KiB
 *   states vfork          the main thread is in vfork, whose child reads; another thread waits. "child PID" is said first
 *   states vfork-alone    the same without the other thread
 *   states named          a thread named as ours waits on a word of the program's
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int wrong, traps, stop;
static volatile long handled, sent;

static void say(const char *format, long value) {
    char line[64];
    int n = snprintf(line, sizeof line, format, value);
    if (write(1, line, (size_t)n) != n) _exit(9);
}
static void trap(int s) {
    (void)s;
    traps++;
}
static void allocates(int s) {
    (void)s;
    free(malloc((size_t)(handled++ % 2000)));
}
static void counts(int s) {
    (void)s;
    handled++;
}
static void handle(int signal, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(signal, &action, 0);
}

/* Reads one byte with the units set up; afterwards they must be as they were. */
#ifdef __aarch64__
static long read_units(char *byte) {
    static const uint64_t rounding = 0x800000, saturated = 0x8000000, conditions = 0xa0000000;
    uint64_t rounding_after, saturated_after, conditions_after;
    register long result asm("x0") = 0;
    register char *at asm("x1") = byte;
    register long length asm("x2") = 1, number asm("x8") = SYS_read;
    __asm__ volatile("msr fpcr, %[rounding]; msr fpsr, %[saturated]; msr nzcv, %[conditions]; svc #0\n"
                     "mrs %[conditions_after], nzcv; mrs %[rounding_after], fpcr; mrs %[saturated_after], fpsr\n"
                     "msr fpcr, xzr; msr fpsr, xzr"
                     : "+r"(result), [conditions_after] "=&r"(conditions_after), [rounding_after] "=&r"(rounding_after),
                       [saturated_after] "=&r"(saturated_after)
                     : [rounding] "r"(rounding), [saturated] "r"(saturated), [conditions] "r"(conditions), "r"(at), "r"(length),
                       "r"(number)
                     : "cc", "memory");
    if (rounding_after != rounding) wrong |= 2;
    if (!(saturated_after & saturated)) wrong |= 1;
    if (conditions_after != conditions) wrong |= 4;
    return result;
}
#else
static long read_units(char *byte) {
    static const uint16_t control = 0x027f; /* double precision */
    static const uint32_t rounding = 0x3f80; /* up */
    static uint32_t rounding_after;
    static uint64_t flags;
    uint16_t control_after;
    long double pi = 0;
    long result;
    __asm__ volatile("fninit; fldpi; fldl2e; fldcw %[control]; ldmxcsr %[rounding]\n"
                     "std; xor %%eax, %%eax; xor %%edi, %%edi; mov $1, %%edx; syscall\n"
                     "pushfq; pop %[flags]; cld; fnstcw %[after]; stmxcsr %[rounding_after]\n"
                     "fninit"
                     : "=a"(result), [flags] "=m"(flags), [after] "=m"(control_after), [rounding_after] "=m"(rounding_after)
                     : [control] "m"(control), [rounding] "m"(rounding), "S"(byte)
                     : "rcx", "r11", "rdi", "rdx", "memory");
    (void)pi;
    if (control_after != control) wrong |= 1;
    if ((rounding_after & 0xffc0) != rounding) wrong |= 2;
    if (!(flags & 0x400)) wrong |= 4;
    return result;
}
#endif

static void *waits(void *name) {
    if (name) prctl(PR_SET_NAME, name);
    static uint32_t word[1024] = {0};
    if (name) syscall(SYS_futex, word + 512, FUTEX_WAIT, 0, 0, 0, 0);
    while (!stop) pause();
    return 0;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "";
    sigset_t trap_set, old;
    sigemptyset(&trap_set);
    sigaddset(&trap_set, SIGTRAP);
    char *volatile stack = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternative = {.ss_sp = stack, .ss_size = 65536}, now;
    pid_t child = 0;
    if (!strncmp(kind, "trap-", 5)) handle(SIGTRAP, strcmp(kind, "trap-ignored") ? trap : SIG_IGN);
    if (!strcmp(kind, "trap-pending")) {
        sigprocmask(SIG_BLOCK, &trap_set, 0);
        raise(SIGTRAP);
    } else if (!strcmp(kind, "alarms")) {
        struct itimerval each = {{0, 1000}, {0, 1000}};
        handle(SIGALRM, allocates);
        handle(SIGPROF, allocates);
        setitimer(ITIMER_REAL, &each, 0);
        setitimer(ITIMER_PROF, &each, 0);
    } else if (!strcmp(kind, "flood")) {
        handle(SIGRTMIN + 3, counts);
        pid_t parent = getpid();
        int pipe_[2];
        if (pipe(pipe_)) return 8;
        child = fork();
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            union sigval value = {0};
            for (long n = 0; n < 3000; n++) {
                while (sigqueue(parent, SIGRTMIN + 3, value)) usleep(100);
                usleep(50);
            }
            _exit(0);
        }
        sent = 3000;
    } else if (!strcmp(kind, "units")) {
        sigaltstack(&alternative, 0);
    } else if (!strcmp(kind, "small") || !strcmp(kind, "named") || !strcmp(kind, "vfork")) {
        pthread_attr_t small;
        pthread_t thread;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 16384);
        pthread_create(&thread, &small, waits, strcmp(kind, "named") ? 0 : "midair-worker");
    }
    if (!strncmp(kind, "vfork", 5)) {
        child = vfork();
        if (!child) {
            say("child %ld\n", getpid());
            char byte;
            while (read(0, &byte, 1) == 1 && byte != '\n') {}
            _exit(0);
        }
        say("checked %ld\n", wrong);
        child = 0;
    } else {
        say("ready\n", 0);
    }
    for (char byte; (strcmp(kind, "units") ? read(0, &byte, 1) : read_units(&byte)) == 1;) {
        if (byte != '\n') continue;
        if (!strcmp(kind, "trap-pending")) {
            if (traps) wrong |= 1;
            sigprocmask(SIG_UNBLOCK, &trap_set, &old);
            if (traps != 1 || !sigismember(&old, SIGTRAP)) wrong |= 2;
        }
        if (!strcmp(kind, "trap-handled") && (raise(SIGTRAP) || traps != 1)) wrong |= 1;
        if (!strcmp(kind, "trap-ignored") && (raise(SIGTRAP) || traps)) wrong |= 1;
        if (!strcmp(kind, "alarms") && handled < 10) wrong |= 1;
        for (int i = 0; !strcmp(kind, "flood") && handled < sent; i++) {
            if (i > 60000) wrong |= 1;
            if (wrong) break;
            usleep(1000);
        }
        if (!strcmp(kind, "flood") && handled != sent) wrong |= 2;
        if (!strcmp(kind, "units") && (sigaltstack(0, &now) || now.ss_sp != stack || now.ss_size != 65536 || now.ss_flags)) wrong |= 8;
        say("checked %ld\n", wrong);
    }
    _exit(wrong);
}
