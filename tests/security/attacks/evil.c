/* A library that no process with rights wants. When it is loaded it adds a line with its user, its
 * effective user and its program to the file that EVIL_MARK names. It looks like an SDK. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    const char *mark = getenv("EVIL_MARK");
    if (!mark) return;
    char line[64];
    int len = snprintf(line, sizeof line, "evil %d %d\n", (int)getuid(), (int)geteuid());
    int fd = open(mark, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd < 0) return;
    if (write(fd, line, (size_t)len) != len) _exit(9);
    close(fd);
}

int rocprofiler_set_api_table(const char *name, unsigned long version, unsigned long instance, void **tables, unsigned long count) {
    (void)name, (void)version, (void)instance, (void)tables, (void)count;
    return 0;
}
