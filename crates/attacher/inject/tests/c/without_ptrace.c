/* Runs a program that cannot trace any process: without_ptrace UID PROGRAM ARGUMENTS. With "-" as
 * UID, the user stays the same. Whatever needs the right to trace fails with EPERM in the program,
 * whoever its user is. With ONLY_PTRACE in the environment, only ptrace itself fails, and with ONLY_WRITING only
 * process_vm_writev. */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char** words)
{
    if(count < 3) return 2;
    if(words[1][0] != '-')
    {
        unsigned id = (unsigned)atoi(words[1]);
        if(setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id)) return 3;
    }
#define DENY(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)
    // No call has this number.
    const unsigned none = 0xffffffff;
    int only_writing = getenv("ONLY_WRITING") != NULL;
    unsigned tracing = only_writing ? none : 0, writing = getenv("ONLY_PTRACE") ? none : 0;
    unsigned others = tracing | writing;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_ptrace | tracing),
        DENY(SYS_process_vm_readv | others),
        DENY(SYS_process_vm_writev | writing),
        DENY(SYS_pidfd_getfd | others),
        DENY(SYS_kcmp | others),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 4;
    execvp(words[2], words + 2);
    perror(words[2]);
    return 5;
}
