/* A process under system call filters.
 *
 *   filtered filter DEFAULT [NUMBER=RESULT...] [-- DEFAULT ...]
 *       installs filters one after the other (results are hexadecimal SECCOMP_RET_*)
 *   filtered strict                              strict mode
 *   filtered dispatch                            syscall user dispatch, letting everything pass
 *   filtered dispatch-ours                       the same, but only the C library's calls pass
 *   filtered plain                               nothing
 *   filtered under PROGRAM [ARG...]              a filter that lets everything pass, then becomes PROGRAM
 *
 * All threads are under it: one waits for a condition, the main one in read. Commands: "check" is answered "checked" by the
 * other thread; the end of the input ends the process. Only read, write, futex and exit_group are called once it says "ready". */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int rounds;
static char selector = 0;

static void say(const char *words) {
    if (write(1, words, strlen(words)) < 0) _exit(9);
}

static unsigned long library, length;

/* Finds the C library's code. */
static void find_library(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        char access[5];
        if (sscanf(line, "%lx-%lx %4s", &begin, &end, access) != 3 || access[2] != 'x') continue;
        if (begin <= (unsigned long)&write && (unsigned long)&write < end) library = begin, length = end - begin;
    }
    if (!library) _exit(5);
    fclose(maps);
}

static void dispatched(int number) { _exit(number); }

static void dispatch(void) {
    if (library) selector = 1; /* SYSCALL_DISPATCH_FILTER_BLOCK */
    /* PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON */
    if (prctl(59, 1, library, length, &selector)) _exit(8);
}

static void *waits(void *kind) {
    if (!strncmp(kind, "dispatch", 8)) dispatch();
    pthread_mutex_lock(&lock);
    rounds = 1;
    pthread_cond_broadcast(&cond);
    for (int seen = 1;;) {
        while (rounds == seen) pthread_cond_wait(&cond, &lock);
        seen = rounds;
        say("checked\n");
    }
}

static void install(int count, char **words) {
    static struct sock_filter program[1024];
    unsigned n = 0;
    program[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 1; i < count; i++) {
        char *end;
        unsigned number = (unsigned)strtoul(words[i], &end, 10);
        program[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (unsigned)strtoul(end + 1, 0, 16));
    }
    program[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, (unsigned)strtoul(words[0], 0, 16));
    struct sock_fprog all = {(unsigned short)n, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) _exit(7);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all)) _exit(6);
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "plain";
    if (!strcmp(kind, "under")) {
        char *all[] = {"7fff0000"};
        install(1, all);
        execv(argv[2], argv + 2);
        return 5;
    }
    if (!strcmp(kind, "dispatch-ours")) find_library();
    pthread_t thread;
    /* A call that is taken for one of the program's ends the program. */
    signal(SIGSYS, dispatched);
    pthread_create(&thread, 0, waits, (void *)kind);
    pthread_mutex_lock(&lock);
    while (!rounds) pthread_cond_wait(&cond, &lock);
    pthread_mutex_unlock(&lock);
    for (int i = 2, n; !strcmp(kind, "filter") && i < argc; i += n + 1) {
        for (n = 0; i + n < argc && strcmp(argv[i + n], "--"); n++) {}
        install(n, argv + i);
    }
    if (!strncmp(kind, "dispatch", 8)) dispatch();
    if (!strcmp(kind, "strict") && prctl(PR_SET_SECCOMP, 1)) return 4;
    say("ready\n");
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (byte != '\n') continue;
        pthread_mutex_lock(&lock);
        rounds++;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&lock);
    }
    if (!strcmp(kind, "strict")) syscall(SYS_exit, 0);
    _exit(0);
}
