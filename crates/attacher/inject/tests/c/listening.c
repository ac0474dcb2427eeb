/* A program that links our register library, registers a runtime's table when told to, and does
 * what its input says. Its arguments come before that: "drop UID" gives up root for good,
 * "keep UID" does so but keeps its capabilities, "dumpable" lets other processes inspect it
 * all the same, and "filter" forbids itself the calls that tracers use. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

int rocprofiler_register_library_api_table(const char*, void*, uint32_t, void**, uint64_t, uint64_t*);

static uint64_t       table[4] = {32, 1, 2, 3};
static _Atomic long   rounds;
static volatile int   stop;

static void* work(void* unused)
{
    (void)unused;
    while(!stop)
    {
        void* piece = malloc(64);
        memset(piece, 1, 64);
        free(piece);
        ++rounds;
        usleep(500);
    }
    return NULL;
}

static void register_one(void)
{
    void*    tables[1] = {table};
    uint64_t id        = 0;
    int      code      = rocprofiler_register_library_api_table("hsa", NULL, 11800, tables, 1, &id);
    printf("registered %d\n", code);
}

/* Linux before 6.5 has no pidfd of a socket's peer, and the listener opens one. */
static int opens_pidfds(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 && (major < 6 || (major == 6 && minor < 5));
}

static void filter(void)
{
#define DENY(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_ptrace),
        DENY(SYS_process_vm_readv),
        DENY(SYS_process_vm_writev),
        DENY(SYS_pidfd_getfd),
        DENY(opens_pidfds() ? SYS_kcmp : SYS_pidfd_open),
        DENY(SYS_kcmp),
        DENY(SYS_socketpair),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program))
        perror("seccomp");
}

static void child(void)
{
    fflush(stdout);
    int pid = fork();
    if(pid == 0)
    {
        printf("child %d\n", getpid());
        fflush(stdout);
        for(;;) pause();
    }
}

/* Forks and execs as fast as it can. The exec is a child's first act. */
static void storm(int count)
{
    int bad = 0;
    for(int i = 0; i < count; ++i)
    {
        int pid = fork();
        if(pid == 0)
        {
            if(i & 1) _exit(0);
            execl("/bin/true", "true", (char*)NULL);
            _exit(1);
        }
        int status = 1;
        if(waitpid(pid, &status, 0) != pid || status != 0) ++bad;
    }
    printf("storm %d\n", bad);
}

/* Closes all descriptors, as a daemon does, and then uses their numbers itself. */
static void close_all(void)
{
    syscall(SYS_close_range, 3, ~0u, 0);
    int wrong = 0;
    for(int i = 0; i < 300; ++i)
        if(open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) ++wrong;
    printf("closed %d\n", wrong);
}

static void look_at_all(void)
{
    int         wrong = 0;
    struct stat null, it;
    stat("/dev/null", &null);
    for(int fd = 3; fd < 303; ++fd)
        if(fstat(fd, &it) || it.st_rdev != null.st_rdev) ++wrong;
    printf("others %d\n", wrong);
}

int main(int count, char** words)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for(int i = 1; i < count; ++i)
    {
        if(!strcmp(words[i], "drop") || !strcmp(words[i], "keep"))
        {
            unsigned id = (unsigned)atoi(words[i + 1]);
            if(words[i][0] == 'k') prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
            if(setresgid(id, id, id) || setresuid(id, id, id)) perror("setresuid");
            ++i;
        }
        else if(!strcmp(words[i], "dumpable")) prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
        else if(!strcmp(words[i], "filter")) filter();
    }
    pthread_t threads[2];
    for(int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, work, NULL);
    printf("ready\n");
    char line[64];
    while(fgets(line, sizeof line, stdin))
    {
        if(!strncmp(line, "register", 8)) register_one();
        else if(!strncmp(line, "fork", 4)) child();
        else if(!strncmp(line, "storm", 5)) storm(atoi(line + 6));
        else if(!strncmp(line, "close", 5)) close_all();
        else if(!strncmp(line, "others", 6)) look_at_all();
        else if(!strncmp(line, "filter", 6))
        {
            filter();
            printf("filtered\n");
        }
        else if(!strncmp(line, "rounds", 6))
        {
            long before = rounds;
            while(rounds == before) usleep(100);
            printf("rounds go on\n");
        }
    }
    stop = 1;
    for(int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    printf("done\n");
    return 0;
}
