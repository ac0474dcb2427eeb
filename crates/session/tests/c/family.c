/* Processes of unusual shapes, for tests of groups. All end with their standard input.
 *
 *   vfork     its child runs in its memory and never calls exec
 *   headless  its main thread ends, and another one goes on
 *   threads   says the number of its second thread
 *   other     has a function of HSA's, whatever its file is called
 *
 * Each says "ready" and a number when it is what it should be. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int hsa_init(void) { return 0; }

static void wait_for_the_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

static void say(long number) {
    char line[64];
    int length = snprintf(line, sizeof line, "ready %ld\n", number);
    if (write(1, line, (size_t)length) != length) _exit(3);
}

static void *second(void *unused) {
    say(syscall(SYS_gettid));
    wait_for_the_end();
    _exit(0);
    return unused;
}

int main(int count, char **words) {
    const char *shape = count > 1 ? words[1] : "";
    if (!strcmp(shape, "vfork")) {
        if (vfork() == 0) {
            say(getpid());
            wait_for_the_end();
            _exit(0);
        }
    } else if (!strcmp(shape, "headless") || !strcmp(shape, "threads")) {
        pthread_t thread;
        if (pthread_create(&thread, 0, second, 0)) return 2;
        if (*shape == 'h') pthread_exit(0);
        pthread_join(thread, 0);
    } else {
        say(getpid());
        wait_for_the_end();
    }
    return 0;
}
