/* A process to be entered. It checks its own work and its own waits.
 *
 *   target BUSY PARKED...
 *
 * BUSY threads allocate, fill, check and free. Each PARKED names one more thread and what it waits in:
 *   cond sem read poll ppoll traps nanosleep sleep mutex epoll regs recv-limit lib-poll lib-cond arena arena-held NAME (any other: cond)
 * "ppoll" and "sleep" keep on their stack what the kernel writes the time into that is left of the wait.
 * "recv-limit" receives from a socket that has a time limit of its own (SO_RCVTIMEO).
 * "regs" fills all registers and reads by an instruction of its own. "lib-" ones wait inside the library named by RUNTIME.
 * "arena" waits for the lock of its own malloc arena; "arena-held" is parked in poll while another thread holds that
 * lock.
 *
 * Commands on stdin: "check": each thread is woken, checks, and goes back to its wait; then "checked wrong W rounds R".
 * "end" or the end of the file: all threads are joined, "ended wrong W rounds R", exit status W.
 * CONTROL names a pipe; a letter in it makes the process: e exit(0), _ _exit(7), a abort, x execute a shell that says "other" and exits
 * with 5 at the end of its input, l end its first thread and go on,
 * u become user 12345 for good (as root), h become a process that is not dumpable, s execute the program that RAISED names.
 * Says "ready" when all threads run. The main thread waits in readv, which no engine enters through. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256 };
static atomic_int stop, wrong, ready, want, relocked;
static atomic_ulong rounds;

static void *busy(void *seed_) {
    unsigned seed = (unsigned)(uintptr_t)seed_ * 2654435761u + 1;
    enum { N = 64 };
    unsigned char *block[N] = {0};
    size_t size[N] = {0};
    unsigned char mark[N] = {0};
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        seed = seed * 1664525u + 1013904223u;
        int i = (seed >> 16) % N;
        if (block[i]) {
            for (size_t k = 0; k < size[i]; k += 37)
                if (block[i][k] != mark[i]) atomic_store(&wrong, 1);
            free(block[i]);
            block[i] = 0;
        } else {
            size[i] = 1 + (seed >> 8) % 3000;
            mark[i] = (unsigned char)seed;
            block[i] = malloc(size[i]);
            if (!block[i]) abort();
            memset(block[i], mark[i], size[i]);
        }
        atomic_fetch_add(&rounds, 1);
    }
    for (int i = 0; i < N; i++) free(block[i]);
    return 0;
}

struct parked {
    pthread_t thread;
    const char *kind;
    int pipe[2], epoll;
    sem_t sem;
    atomic_int seen;
    int *arena;
};
static struct parked all[MOST];
static int parked_threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int (*lib_poll)(int fd);
static void (*lib_cond)(atomic_int *word, int until_not);
static void (*lib_wake)(void);

/* Reads one byte with every register filled, and keeps them all afterwards for the check. */
long read_filled(int fd, void *byte);
uint64_t filled_in[64 * 4], filled_out[64 * 4], filled_general[9];
int filled_512;
#ifdef __aarch64__
/* x19 to x27, and all of v0 to v31. */
#define EACH_PAIR(m) \
    m(0, 1) m(2, 3) m(4, 5) m(6, 7) m(8, 9) m(10, 11) m(12, 13) m(14, 15) m(16, 17) m(18, 19) m(20, 21) m(22, 23) m(24, 25) \
    m(26, 27) m(28, 29) m(30, 31)
#define LOAD(a, b) "ldp q" #a ", q" #b ", [x9], #32\n"
#define KEEP(a, b) "stp q" #a ", q" #b ", [x9], #32\n"
#define AT(name) "adrp x9, " #name "\nadd x9, x9, :lo12:" #name "\n"
asm(".text\n.globl read_filled\n.type read_filled,@function\nread_filled:\n.cfi_startproc\n"
    "stp x29, x30, [sp, #-160]!\n.cfi_adjust_cfa_offset 160\n.cfi_offset 29, -160\n.cfi_offset 30, -152\nmov x29, sp\n"
    "stp x19, x20, [sp, #16]\nstp x21, x22, [sp, #32]\nstp x23, x24, [sp, #48]\nstp x25, x26, [sp, #64]\nstr x27, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    AT(filled_in) EACH_PAIR(LOAD)
    "ldr x19, =0x0b0b0b0b\nldr x20, =0x0c0c0c0c\nldr x21, =0x08080808\nldr x22, =0x09090909\nldr x23, =0x10101010\n"
    "ldr x24, =0x12121212\nldr x25, =0x13131313\nldr x26, =0x14141414\nldr x27, =0x15151515\n"
    "mov x2, #1\nmov x8, #63\nsvc #0\n"
    AT(filled_general)
    "stp x19, x20, [x9], #16\nstp x21, x22, [x9], #16\nstp x23, x24, [x9], #16\nstp x25, x26, [x9], #16\nstr x27, [x9]\n"
    AT(filled_out) EACH_PAIR(KEEP)
    "ldp x19, x20, [sp, #16]\nldp x21, x22, [sp, #32]\nldp x23, x24, [sp, #48]\nldp x25, x26, [sp, #64]\nldr x27, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "ldp x29, x30, [sp], #160\nret\n.ltorg\n.cfi_endproc\n.size read_filled,.-read_filled\n");
#define HAS_512 0
/* Rounding towards zero takes the place of the trapping exceptions of x86-64, which few of these
 * processors have. */
#define SET_FLOAT(word) asm volatile("msr fpcr, %0" : : "r"((uint64_t)(word)))
#define GET_FLOAT(word) \
    do { \
        uint64_t all_; \
        asm volatile("mrs %0, fpcr" : "=r"(all_)); \
        word = (unsigned)all_; \
    } while (0)
#define UNUSUAL_FLOAT 0xc00000u
#else
#define HAS_512 (__builtin_cpu_supports("avx512f") != 0)
#define SET_FLOAT(word) asm volatile("ldmxcsr %0" : : "m"(word))
#define GET_FLOAT(word) asm volatile("stmxcsr %0" : "=m"(word))
#define UNUSUAL_FLOAT 0u
#define EACH16(m, a, b) \
    m(0, a, b) m(1, a, b) m(2, a, b) m(3, a, b) m(4, a, b) m(5, a, b) m(6, a, b) m(7, a, b) m(8, a, b) m(9, a, b) m(10, a, b) \
    m(11, a, b) m(12, a, b) m(13, a, b) m(14, a, b) m(15, a, b)
#define LOAD(n, a, b) "vmovdqu filled_in+32*" #n "(%rip), %ymm" #n "\n"
#define KEEP(n, a, b) "vmovdqu %ymm" #n ", filled_out+32*" #n "(%rip)\n"
#define PUSH(r) "push %" #r "\n.cfi_adjust_cfa_offset 8\n"
#define POP(r) "pop %" #r "\n.cfi_adjust_cfa_offset -8\n"
asm(".text\n.globl read_filled\n.type read_filled,@function\nread_filled:\n.cfi_startproc\n"
    PUSH(rbx) PUSH(rbp) PUSH(r12) PUSH(r13) PUSH(r14) PUSH(r15)
    EACH16(LOAD, , )
    "cmpl $0, filled_512(%rip)\nje 1f\n"
    "vmovdqu64 filled_in+1024(%rip), %zmm16\nvmovdqu64 filled_in+1088(%rip), %zmm31\nvmovdqu64 filled_in+1152(%rip), %zmm5\n"
    "mov $0x5a5a, %eax\nkmovw %eax, %k1\n"
    "1: mov $0x0b0b0b0b, %rbx\nmov $0x0c0c0c0c, %rbp\nmov $0x08080808, %r8\nmov $0x09090909, %r9\nmov $0x10101010, %r10\n"
    "mov $0x12121212, %r12\nmov $0x13131313, %r13\nmov $0x14141414, %r14\nmov $0x15151515, %r15\n"
    "mov $1, %edx\nxor %eax, %eax\nsyscall\n"
    "mov %rbx, filled_general(%rip)\nmov %rbp, filled_general+8(%rip)\nmov %r8, filled_general+16(%rip)\n"
    "mov %r9, filled_general+24(%rip)\nmov %r10, filled_general+32(%rip)\nmov %r12, filled_general+40(%rip)\n"
    "mov %r13, filled_general+48(%rip)\nmov %r14, filled_general+56(%rip)\nmov %r15, filled_general+64(%rip)\n"
    EACH16(KEEP, , )
    "cmpl $0, filled_512(%rip)\nje 2f\n"
    "vmovdqu64 %zmm16, filled_out+1024(%rip)\nvmovdqu64 %zmm31, filled_out+1088(%rip)\nvmovdqu64 %zmm5, filled_out+1152(%rip)\n"
    "kmovw %k1, %ecx\nmov %ecx, filled_out+1216(%rip)\n"
    "2: vzeroupper\n" POP(r15) POP(r14) POP(r13) POP(r12) POP(rbp) POP(rbx)
    "ret\n.cfi_endproc\n.size read_filled,.-read_filled\n");
#endif

static long read_with_registers(int fd) {
    static const uint64_t general[9] = {0x0b0b0b0b, 0x0c0c0c0c, 0x08080808, 0x09090909, 0x10101010,
                                        0x12121212, 0x13131313, 0x14141414, 0x15151515};
    char byte;
    for (int i = 0; i < 64 * 4; i++) filled_in[i] = 0x0102030405060708ull * (unsigned)(i + 1);
    filled_512 = HAS_512;
    memset(filled_out, 0, sizeof filled_out);
    /* The lower half of zmm5 is what ymm5 holds. */
    memcpy(&filled_in[144], &filled_in[20], 32);
    long result = read_filled(fd, &byte);
    if (memcmp(general, filled_general, sizeof general)) atomic_store(&wrong, 11);
    if (memcmp(filled_in, filled_out, 512)) atomic_store(&wrong, 12);
    if (filled_512 && (memcmp(filled_in + 128, filled_out + 128, 192) || (uint32_t)filled_out[152] != 0x5a5a))
        atomic_store(&wrong, 10);
    return result;
}

/* The lock of this thread's malloc arena: the first word of what the heap's first word points to (glibc 2.36). */
static int *own_arena(void) {
    char *volatile p = malloc(100);
    int *arena = *(int **)((uintptr_t)p & ~(uintptr_t)0x3ffffff);
    free(p);
    return arena;
}

/* Two ends of a connection; the first gives up after an hour. */
static int limited(int ends[2]) {
    struct timeval hour = {3600, 0};
    return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof hour);
}

static void *parked(void *self_) {
    struct parked *self = self_;
    const char *kind = self->kind;
    prctl(PR_SET_NAME, kind);
    /* The thread gets its arena here. Otherwise, pthread_create on it would give it one. */
    char *volatile first = malloc(100);
    free(first);
    char byte;
    atomic_int *seen = &self->seen;
    if (!strncmp(kind, "arena", 5)) self->arena = own_arena();
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
        int now = atomic_load(&want);
        atomic_store(seen, now);
        int changed = 0;
#define CHANGED (changed = atomic_load(&stop) || atomic_load(&want) != now)
        if (!strcmp(kind, "nanosleep")) {
            struct timespec t = {3600, 0};
            if (nanosleep(&t, 0) && !CHANGED) atomic_store(&wrong, 2);
        } else if (!strcmp(kind, "sleep")) {
            struct timespec t = {3600, 0};
            if (!nanosleep(&t, &t) || !CHANGED || t.tv_sec > 3599) atomic_store(&wrong, 19);
        } else if (!strcmp(kind, "ppoll")) {
            /* By an instruction of the C library's, but not on a copy of the time limit. */
            struct timespec t = {3600, 0};
            struct pollfd p = {self->pipe[0], POLLIN, 0};
            if (syscall(SYS_ppoll, &p, 1, &t, 0, 0) != 1 || t.tv_sec > 3599) atomic_store(&wrong, 20);
            if (read(self->pipe[0], &byte, 1) != 1) atomic_store(&wrong, 13);
        } else if (!strcmp(kind, "poll") || !strcmp(kind, "traps")) {
            /* All floating point exceptions trap, as in programs that look for their first NaN. */
            unsigned csr = UNUSUAL_FLOAT, after;
            if (*kind == 't') SET_FLOAT(csr);
            struct pollfd p = {self->pipe[0], POLLIN, 0};
            if (poll(&p, 1, 3600 * 1000) < 0) atomic_store(&wrong, 3);
            GET_FLOAT(after);
            if (*kind == 't' && after != csr) atomic_store(&wrong, 17);
            if (read(self->pipe[0], &byte, 1) != 1) atomic_store(&wrong, 13);
        } else if (!strcmp(kind, "read")) {
            if (read(self->pipe[0], &byte, 1) < 0) atomic_store(&wrong, 4);
        } else if (!strcmp(kind, "recv-limit")) {
            if (recv(self->pipe[0], &byte, 1, 0) < 0 && errno != EINTR) atomic_store(&wrong, 18);
        } else if (!strcmp(kind, "regs")) {
            if (read_with_registers(self->pipe[0]) < 0) atomic_store(&wrong, 14);
        } else if (!strcmp(kind, "sem")) {
            if (sem_wait(&self->sem)) atomic_store(&wrong, 5);
        } else if (!strcmp(kind, "mutex")) {
            pthread_mutex_lock(&held);
            pthread_mutex_unlock(&held);
            /* The main thread takes the lock again once all have been seen. */
            int round = atomic_load(&want);
            atomic_store(seen, round);
            while (!atomic_load(&stop) && atomic_load(&relocked) < round) sched_yield();
        } else if (!strcmp(kind, "epoll")) {
            struct epoll_event e;
            if (epoll_wait(self->epoll, &e, 1, -1) == 1 && read(self->pipe[0], &byte, 1) != 1) atomic_store(&wrong, 15);
        } else if (!strcmp(kind, "lib-poll")) {
            if (lib_poll(self->pipe[0]) < 0) atomic_store(&wrong, 6);
        } else if (!strcmp(kind, "lib-cond")) {
            lib_cond(&want, now);
        } else if (!strcmp(kind, "arena")) {
            __atomic_store_n(self->arena, 2, __ATOMIC_SEQ_CST);
            char *volatile p = malloc(60000); /* waits until the arena is unlocked */
            free(p);
            while (!CHANGED) sched_yield();
        } else if (!strcmp(kind, "arena-held")) {
            __atomic_store_n(self->arena, 2, __ATOMIC_SEQ_CST);
            struct pollfd p = {self->pipe[0], POLLIN, 0};
            if (poll(&p, 1, -1) < 0) atomic_store(&wrong, 7);
            __atomic_store_n(self->arena, 0, __ATOMIC_SEQ_CST);
            if (read(self->pipe[0], &byte, 1) != 1) atomic_store(&wrong, 16);
        } else {
            pthread_mutex_lock(&lock);
            while (!CHANGED) pthread_cond_wait(&cond, &lock);
            pthread_mutex_unlock(&lock);
        }
    }
    return 0;
}

static pthread_t first_thread;

static void *controlled(void *unused) {
    (void)unused;
    int pipe = open(getenv("CONTROL"), O_RDWR);
    char letter = 0;
    struct iovec part = {&letter, 1};
    if (pipe < 0) _exit(94);
    atomic_fetch_add(&ready, 1);
    while (readv(pipe, &part, 1) == 1) {
        if (letter == 'e') exit(0);
        if (letter == '_') _exit(7);
        if (letter == 'a') abort();
        if (letter == 'x') execl("/bin/sh", "sh", "-c", "echo other; while read x; do :; done; exit 5", (char *)0);
        if (letter == 'l') pthread_cancel(first_thread);
        if (letter == 'u' && setresuid(12345, 12345, 12345)) abort();
        if (letter == 'h' && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) abort();
        if (letter == 's') execl(getenv("RAISED"), "raised", (char *)0);
    }
    return 0;
}

static void nothing(int signal) { (void)signal; }

static void wake_all(void) {
    pthread_mutex_unlock(&held);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < parked_threads; i++) {
        struct parked *one = &all[i];
        if (!strcmp(one->kind, "nanosleep") || !strcmp(one->kind, "sleep")) pthread_kill(one->thread, SIGUSR1);
        if (!strcmp(one->kind, "sem")) sem_post(&one->sem);
        if (!strcmp(one->kind, "lib-cond")) lib_wake();
        /* lll_unlock by hand: free the lock and wake a thread that waits for it. */
        if (!strcmp(one->kind, "arena")) {
            __atomic_store_n(one->arena, 0, __ATOMIC_SEQ_CST);
            syscall(SYS_futex, one->arena, 1 | 128, 1);
        }
        if (strcmp(one->kind, "sem") && strcmp(one->kind, "cond") && write(one->pipe[1], "x", 1) != 1) abort();
    }
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 0;
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGTRAP, &action, 0);
    sigaction(SIGUSR1, &action, 0);
    signal(SIGUSR2, SIG_IGN);
    if (getenv("RUNTIME")) {
        void *library = dlopen(getenv("RUNTIME"), RTLD_NOW);
        if (!library) return 93;
        lib_poll = (int (*)(int))dlsym(library, "runtime_poll");
        lib_cond = (void (*)(atomic_int *, int))dlsym(library, "runtime_cond");
        lib_wake = (void (*)(void))dlsym(library, "runtime_wake");
    }
    pthread_mutex_lock(&held);
    pthread_t busy_thread[MOST];
    for (int i = 0; i < n; i++) pthread_create(&busy_thread[i], 0, busy, (void *)(uintptr_t)i);
    for (int i = 2; i < argc; i++) {
        struct parked *one = &all[parked_threads++];
        one->kind = argv[i];
        if (strcmp(one->kind, "recv-limit") ? pipe(one->pipe) : limited(one->pipe)) return 90;
        if (sem_init(&one->sem, 0, 0)) return 90;
        one->epoll = epoll_create1(0);
        struct epoll_event e = {.events = EPOLLIN};
        epoll_ctl(one->epoll, EPOLL_CTL_ADD, one->pipe[0], &e);
        atomic_store(&one->seen, -1);
        pthread_create(&one->thread, 0, parked, one);
    }
    int controls = getenv("CONTROL") != 0;
    pthread_t control_thread;
    first_thread = pthread_self();
    if (controls) pthread_create(&control_thread, 0, controlled, 0);
    while (atomic_load(&ready) < n + parked_threads + controls) sched_yield();
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        char line[64];
        struct iovec part = {line, sizeof line};
        ssize_t got = readv(0, &part, 1);
        if (got <= 0 || !strncmp(line, "end", 3)) break;
        int next = atomic_fetch_add(&want, 1) + 1;
        wake_all();
        for (int i = 0; i < parked_threads; i++)
            while (atomic_load(&all[i].seen) < next) sched_yield();
        pthread_mutex_lock(&held);
        atomic_store(&relocked, next);
        printf("checked wrong %d rounds %lu\n", atomic_load(&wrong), atomic_load(&rounds));
        fflush(stdout);
    }
    atomic_store(&stop, 1);
    atomic_fetch_add(&want, 1);
    wake_all();
    for (int i = 0; i < n; i++) pthread_join(busy_thread[i], 0);
    for (int i = 0; i < parked_threads; i++) pthread_join(all[i].thread, 0);
    printf("ended wrong %d rounds %lu\n", atomic_load(&wrong), atomic_load(&rounds));
    return atomic_load(&wrong);
}
