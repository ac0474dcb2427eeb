/* A library in AMD's place that means harm. It opens its status while it is loaded, and reads it at the
 * first instruction. At the others it tries what it must not, and prints the errors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int status = -1;
static int number;

__attribute__((constructor)) static void loaded(void) { status = open("/proc/self/status", O_RDONLY); }

int amd_comgr_create_disassembly_info(const char *isa, void *read, void (*print)(const char *, void *),
                                      void *annotate, uint64_t *info) {
    *info = (uint64_t)(uintptr_t)print;
    return 0;
}

static const char *error(long result) { return result < 0 ? strerrorname_np(errno) : "done"; }

int amd_comgr_disassemble_instruction(uint64_t info, uint64_t address, void *one, uint64_t *size) {
    void (*print)(const char *, void *) = (void (*)(const char *, void *))(uintptr_t)info;
    static char text[8192];
    char *none[] = {NULL};
    switch (number++) {
    case 0: {
        ssize_t length = pread(status, text, sizeof text - 1, 0);
        text[length < 0 ? 0 : length] = 0;
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            if (!strncmp(line, "Uid", 3) || !strncmp(line, "Gid", 3) || !strncmp(line, "Groups", 6) ||
                !strncmp(line, "CapInh", 6) || !strncmp(line, "CapPrm", 6) || !strncmp(line, "CapEff", 6) ||
                !strncmp(line, "CapAmb", 6) || !strncmp(line, "CapBnd", 6))
                print(line, one), print(" ", one);
        return 0;
    }
    case 1:
        print(error(open("/etc/shadow", O_RDONLY)), one);
        return 0;
    case 2:
        print(error(socket(AF_UNIX, SOCK_STREAM, 0)), one);
        return 0;
    default:
        print(error(execve("/bin/true", none, none) | kill(getpid(), 0)), one);
        return 0;
    }
}
