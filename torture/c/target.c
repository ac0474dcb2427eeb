/* A target: threads with work of their own, each of which sees by itself whether another process disturbs it.
 *
 *   target STATE LEADER [KIND | KIND*COUNT | +OPTION[:VALUE]] ...
 *
 * STATE is a file that state.h describes. LEADER is what the first thread does: a kind, or "stdin" (waits there until told to stop), or
 * "zombie" (ends while the others go on). It ends with 0 when all checks held, by itself, once it is told to by STATE. */
#define _GNU_SOURCE
#include "work.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct state *state;
_Thread_local struct slot *own;
/* For the probe library. */
_Atomic uint32_t *torture_mark;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void is_wrong(struct slot *slot, int line) {
    slot->wrong++;
    int none = 0;
    atomic_compare_exchange_strong(&state->line, &none, line);
}

int round_done(struct slot *slot) {
    static _Thread_local uint64_t last;
    uint32_t epoch = state->epoch;
    uint64_t now = now_ns();
    if (slot->epoch != epoch) {
        slot->gap = 0;
        slot->epoch = epoch;
    } else if (now - last > slot->gap) {
        slot->gap = now - last;
    }
    last = now;
    slot->rounds++;
    return !state->stop;
}

static void fail(const char *what) {
    fprintf(stderr, "target: %s: %s\n", what, strerror(errno));
    exit(9);
}

static struct slot *take_slot(const char *kind) {
    uint32_t n = atomic_fetch_add(&state->used, 1);
    if (n >= SLOTS) fail("too many threads");
    struct slot *slot = &state->slots[n];
    snprintf(slot->kind, sizeof slot->kind, "%s", kind);
    return slot;
}

static void begin(struct slot *slot) {
    own = slot;
    prctl(PR_SET_NAME, slot->kind);
    slot->tid = (int)syscall(SYS_gettid);
}

static job job_of(const char *kind) {
    job found = busy_job(kind);
    if (!found) found = calling_job(kind);
    return found;
}

static void *thread(void *data) {
    struct slot *slot = data;
    begin(slot);
    job_of(slot->kind)(slot);
    return 0;
}

static pthread_t threads[SLOTS];
static int joinable[SLOTS], count;
static void start(const char *kind, int stack) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack ? (size_t)stack : 256 * 1024);
    if (pthread_create(&threads[count], &attr, thread, take_slot(kind))) fail("pthread_create");
    joinable[count++] = busy_job(kind) != 0;
}

/* Signals that come to a thread's handler. */
static void seen(int signal) {
    (void)signal;
    if (own) own->signals++;
}
static void handle(int signal, int flags) {
    /* SA_NODEFER: a mask that is looked at in the middle of a handler is the usual one. */
    struct sigaction action = {.sa_handler = seen, .sa_flags = flags | SA_NODEFER};
    sigaction(signal, &action, 0);
}

/* Allocates where that cannot meet itself: on a thread that never does so otherwise. */
static void allocates(int signal) {
    static uint64_t seed = 1;
    seen(signal);
    if (!own || strcmp(own->kind, "spin")) return;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    free(malloc(16 + (seed >> 33) % 5000));
}

/* The end: busy threads finish their round; the others wait for ever and go with the process. */
static void finish(void) {
    state->stop = 1;
    for (int i = 0; i < count; i++)
        if (joinable[i]) pthread_join(threads[i], 0);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < state->used; i++) wrong += state->slots[i].wrong;
    _exit(wrong ? 8 : 0);
}

static void wait_for_stop(void) {
    char c;
    while (!state->stop) {
        ssize_t n = read(0, &c, 1);
        if (n == 0) return;
        if (n < 0 && errno == EINTR && own) own->eintr++;
    }
}
static void *outlive(void *data) {
    begin(data);
    wait_for_stop();
    finish();
    return 0;
}

/* Filters. */
static void filter(uint32_t action, const int *calls) {
    struct sock_filter code[40];
    unsigned n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (; *calls >= 0; calls++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)*calls, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {(unsigned short)n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no_new_privs");
    unsigned flags = action == SECCOMP_RET_USER_NOTIF ? SECCOMP_FILTER_FLAG_NEW_LISTENER : SECCOMP_FILTER_FLAG_TSYNC;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) < 0) fail("seccomp");
}
static const int harmless[] = {SYS_swapon, -1}, creating[] = {SYS_clone3, SYS_clone, -1};
static const int mapping[] = {SYS_mmap, -1}, sockets[] = {SYS_socketpair, SYS_socket, SYS_recvmsg, -1};

static void limit(int which, rlim_t value) {
    struct rlimit limits = {value, value};
    if (setrlimit(which, &limits)) fail("setrlimit");
}

/* A flood of real-time signals at the whole process. */
static void *flood(void *data) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, 0);
    begin(data);
    uint64_t sent = 0;
    while (!state->stop) {
        /* Handlers nest (SA_NODEFER): as many as a thread's stack holds, also if no thread gets a turn. */
        uint64_t seen = 0;
        for (uint32_t i = 0; i < state->used; i++) seen += state->slots[i].signals;
        for (; sent < seen + 12; sent++) kill(getpid(), SIGRTMIN + 3);
        struct timespec pause = {0, 300000};
        nanosleep(&pause, 0);
    }
    return 0;
}

/* Before threads are made. */
static void early(const char *name, const char *value) {
    long number = value ? atol(value) : 0;
    if (!strcmp(name, "trap")) handle(SIGTRAP, SA_RESTART);
    else if (!strcmp(name, "trap_ignored")) signal(SIGTRAP, SIG_IGN);
    else if (!strcmp(name, "trap_blocked") || !strcmp(name, "trap_pending")) {
        sigset_t set;
        handle(SIGTRAP, SA_RESTART);
        sigemptyset(&set);
        sigaddset(&set, SIGTRAP);
        sigprocmask(SIG_BLOCK, &set, 0);
        if (!strcmp(name, "trap_pending")) kill(getpid(), SIGTRAP);
    } else if (!strcmp(name, "prof")) {
        handle(SIGPROF, SA_RESTART);
        struct itimerval time = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_PROF, &time, 0);
    } else if (!strcmp(name, "alarm") || !strcmp(name, "alarm_malloc")) {
        /* Without SA_NODEFER: a handler that allocates must not meet itself. */
        struct sigaction action = {.sa_handler = allocates, .sa_flags = SA_RESTART};
        if (!strcmp(name, "alarm")) handle(SIGALRM, SA_RESTART);
        else sigaction(SIGALRM, &action, 0);
        struct itimerval time = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_REAL, &time, 0);
    } else if (!strcmp(name, "chld")) handle(SIGCHLD, SA_RESTART);
    else if (!strcmp(name, "nap")) nap_ns = number * 1000000;
    else if (!strcmp(name, "maps")) {
        for (long i = 0; i < number; i++) {
            void *p = mmap(0, 4096, i & 1 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) fail("mmap");
        }
    } else if (!strcmp(name, "libs")) {
        /* The libraries of a directory, each a file of its own. */
        for (long i = 0;; i++) {
            char path[400];
            snprintf(path, sizeof path, "%s/lib%ld.so", value, i);
            if (access(path, F_OK)) break;
            if (!dlopen(path, RTLD_NOW)) fail(dlerror());
        }
    } else if (!strcmp(name, "disk")) {
        if (!mount_disk(value)) fail("a file system that takes its time");
    } else if (!strcmp(name, "amd")) {
        if (!meet_amd(value && !strcmp(value, "socket"))) fail("AMD's register library");
    } else if (!strcmp(name, "lock") && mlockall(MCL_CURRENT | MCL_FUTURE)) fail("mlockall");
}
/* After threads are made. */
static void late(const char *name, const char *value) {
    long number = value ? atol(value) : 0;
    if (!strcmp(name, "flood")) {
        pthread_t id;
        handle(SIGRTMIN + 3, SA_RESTART);
        struct slot *slot = take_slot("flood");
        pthread_create(&id, 0, flood, slot);
        while (!slot->tid) sched_yield();
    } else if (!strcmp(name, "nodump")) prctl(PR_SET_DUMPABLE, 0);
    else if (!strcmp(name, "comm")) {
        prctl(PR_SET_NAME, value);
    } else if (!strcmp(name, "as")) {
        /* So much more than there is now. */
        char text[64] = "";
        int fd = open("/proc/self/statm", O_RDONLY);
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
        limit(RLIMIT_AS, (rlim_t)atol(text) * 4096 + (rlim_t)number * 1024);
    } else if (!strcmp(name, "nofile")) limit(RLIMIT_NOFILE, (rlim_t)number);
    else if (!strcmp(name, "nproc")) limit(RLIMIT_NPROC, (rlim_t)number);
    else if (!strcmp(name, "stack")) limit(RLIMIT_STACK, (rlim_t)number);
    else if (!strcmp(name, "seccomp")) {
        if (!strcmp(value, "harmless")) filter(SECCOMP_RET_KILL_PROCESS, harmless);
        else if (!strcmp(value, "kill")) filter(SECCOMP_RET_KILL_PROCESS, mapping);
        else if (!strcmp(value, "errno")) filter(SECCOMP_RET_ERRNO | EPERM, sockets);
        else if (!strcmp(value, "clone")) filter(SECCOMP_RET_ERRNO | EPERM, creating);
        else if (!strcmp(value, "trap")) filter(SECCOMP_RET_TRAP, sockets);
        else if (!strcmp(value, "notify")) filter(SECCOMP_RET_USER_NOTIF, sockets);
        else if (!strcmp(value, "strict")) prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    } else if (!strcmp(name, "dispatch")) {
        /* Calls of this thread from anywhere are signals, unless this byte lets them through, as it does. */
        static volatile char selector;
        if (prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &selector)) fail("syscall user dispatch");
    }
}

/* Splits "+name:value"; 0 for other words. */
static const char *option(char *word, const char **value) {
    static char copy[256];
    if (*word != '+') return 0;
    snprintf(copy, sizeof copy, "%s", word + 1);
    char *colon = strchr(copy, ':');
    if (colon) *colon++ = 0;
    *value = colon;
    return copy;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *value;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *state)) fail(argv[1]);
    state = mmap(0, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED) fail("mmap");
    close(fd);
    torture_mark = &state->mark;
    handle(SIGUSR1, 0);
    for (int i = 3; i < argc; i++) {
        const char *name = option(argv[i], &value);
        if (name && !strcmp(name, "ipc") && unshare(CLONE_NEWIPC)) fail("an ipc namespace");
        if (name && !strcmp(name, "daemon")) {
            /* As daemons do: twice, so that no process of the test is its parent. */
            if (fork()) { pause(); }
            setsid();
            if (fork()) _exit(0);
        }
        if (name) early(name, value);
    }
    own = take_slot(argv[2]);
    begin(own);
    int stack = 0;
    for (int i = 3; i < argc; i++) {
        const char *name = option(argv[i], &value);
        if (name && !strcmp(name, "stacks")) stack = atoi(value);
    }
    for (int i = 3; i < argc; i++) {
        if (*argv[i] == '+') continue;
        char kind[64];
        snprintf(kind, sizeof kind, "%s", argv[i]);
        char *star = strchr(kind, '*');
        int times = star ? (*star = 0, atoi(star + 1)) : 1;
        if (!job_of(kind)) { errno = EINVAL; fail(kind); }
        while (times--) start(kind, stack);
    }
    int zombie = !strcmp(argv[2], "zombie");
    if (zombie) {
        pthread_t id;
        pthread_create(&id, 0, outlive, take_slot("stdin"));
    }
    /* All of them have begun. */
    for (uint32_t i = 0; i < state->used; i++) {
        struct timespec pause = {0, 1000000};
        int blocking = busy_job(state->slots[i].kind) != 0;
        while (i && (!state->slots[i].tid || (blocking && !state->slots[i].rounds))) nanosleep(&pause, 0);
    }
    state->magic = STATE_MAGIC;
    state->pid = (int)syscall(SYS_getpid);
    for (int i = 3; i < argc; i++) {
        const char *name = option(argv[i], &value);
        if (name) late(name, value);
    }
    state->ready = 1;
    if (zombie) {
        own->tid = 0;
        pthread_exit(0);
    }
    if (!strcmp(argv[2], "stdin")) wait_for_stop();
    else job_of(argv[2])(own);
    finish();
}
