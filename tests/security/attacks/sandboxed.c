/* Runs a program in a sandbox: sandboxed seccomp|landlock|domain PROGRAM ARGUMENTS. All take away what is needed to trace another
 * process, and leave everything else that a program does: files, sockets, memory. "domain" is Landlock without no_new_privs, which only
 * root may have: nothing in /proc tells of it. Exits with 77 where the kernel has no such sandbox, or not for us. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int filter(void)
{
#define DENY(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_ptrace),
        DENY(SYS_process_vm_readv),
        DENY(SYS_process_vm_writev),
        DENY(SYS_pidfd_getfd),
        DENY(SYS_kcmp),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* What it forbids about files is of no interest here (making character devices): whoever is in any such sandbox may not trace anybody
 * who is not in it. */
static int landlock(void)
{
    struct landlock_ruleset_attr rules = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_CHAR};
    int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof rules.handled_access_fs, 0);
    if(fd < 0) return -1;
    int done = (int)syscall(SYS_landlock_restrict_self, fd, 0);
    close(fd);
    return done;
}

int main(int count, char** words)
{
    if(count < 3) return 2;
    int is_domain = !strcmp(words[1], "domain");
    if(!is_domain && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
    if(is_domain || !strcmp(words[1], "landlock") ? landlock() : filter())
    {
        int why = errno;
        perror(words[1]);
        if(is_domain && why == EPERM) return 77;
        return why == ENOSYS || why == EOPNOTSUPP || why == EINVAL ? 77 : 4;
    }
    execv(words[2], words + 2);
    perror(words[2]);
    return 5;
}
