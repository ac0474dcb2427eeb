/* Calls a function on the listener thread of a process in the way that AMD's injector does: PID FUNCTION ARGUMENT ARGUMENT (hexadecimal).
 * Prints the result. Used only to show that our listener serves AMD's injector; midair itself enters processes in another way. */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRY(what) ((what) < 0 ? (perror(#what), exit(1)) : (void)0)

static pid_t listener(const char* pid)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/task", pid);
    DIR* folder = opendir(path);
    for(struct dirent* entry; folder && (entry = readdir(folder)) != NULL;)
    {
        char text[32] = "";
        snprintf(path, sizeof path, "/proc/%s/task/%s/comm", pid, entry->d_name);
        FILE* file = fopen(path, "r");
        if(file && fgets(text, sizeof text, file) && strcmp(text, "rocp-bg-attach\n") == 0) return atoi(entry->d_name);
        if(file) fclose(file);
    }
    exit(3);
}

static unsigned long entry_point(const char* pid)
{
    char       path[64];
    Elf64_auxv_t pair;
    snprintf(path, sizeof path, "/proc/%s/auxv", pid);
    int file = open(path, O_RDONLY);
    while(read(file, &pair, sizeof pair) == sizeof pair)
        if(pair.a_type == AT_ENTRY) return pair.a_un.a_val;
    exit(4);
}

int main(int argc, char** argv)
{
    if(argc != 5) return 2;
    pid_t         thread = listener(argv[1]);
    unsigned long entry  = entry_point(argv[1]);
    int           status;
    TRY(ptrace(PTRACE_SEIZE, thread, NULL, NULL));
    TRY(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL));
    TRY(waitpid(thread, &status, __WALL));

    struct user_regs_struct before, now;
    TRY(ptrace(PTRACE_GETREGS, thread, NULL, &before));
    errno         = 0;
    long word     = ptrace(PTRACE_PEEKTEXT, thread, entry, NULL);
    long call     = (word & ~0xffffffL) | 0xccd0ffL; /* call *%rax; int3 */
    TRY(ptrace(PTRACE_POKETEXT, thread, entry, call));
    now     = before;
    now.rip = entry;
    now.rsp = (before.rsp - 128) & ~15ul;
    now.rax = strtoul(argv[2], NULL, 16);
    now.rdi = strtoul(argv[3], NULL, 16);
    now.rsi = strtoul(argv[4], NULL, 16);
    TRY(ptrace(PTRACE_SETREGS, thread, NULL, &now));
    TRY(ptrace(PTRACE_CONT, thread, NULL, NULL));
    TRY(waitpid(thread, &status, __WALL));
    TRY(ptrace(PTRACE_GETREGS, thread, NULL, &now));
    TRY(ptrace(PTRACE_POKETEXT, thread, entry, word));
    TRY(ptrace(PTRACE_SETREGS, thread, NULL, &before));
    TRY(ptrace(PTRACE_DETACH, thread, NULL, NULL));
    if(!WIFSTOPPED(status) || WSTOPSIG(status) != 5) return 5;
    printf("%u\n", (unsigned)now.rax);
    return 0;
}
