/* Processes of unusual shapes, for tests of groups. All end with their standard input.
 *
 *   vfork     its child runs in its memory and never calls exec
 *   headless  its main thread ends, and another one goes on
 *   threads   says the number of its second thread
 *   other     has a function of HSA's, whatever its file is called
 *   open      an ordinary process of a user who is not root
 *   closed    the same, and not dumpable
 *   raised    the same with root as its saved user; only root can start it
 *   group     the same with root as its saved group; only root can start it
 *   own       an ordinary process of the user who starts it
 *   hidden    the same, and not dumpable
 *
 * Each says "ready" and a number when it is what it should be. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
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
    } else if (!strcmp(shape, "own") || !strcmp(shape, "hidden")) {
        if (prctl(PR_SET_DUMPABLE, *shape == 'o', 0, 0, 0)) return 5;
        say(getpid());
        wait_for_the_end();
    } else if (!strcmp(shape, "group") || !strcmp(shape, "open") || !strcmp(shape, "closed") || !strcmp(shape, "raised")) {
        uid_t user = getuid() ? getuid() : 65534;
        if (*shape == 'g' && setresgid(user, user, 0)) return 4;
        if (setresuid(user, user, *shape == 'r' ? 0 : user)) return 4;
        if (prctl(PR_SET_DUMPABLE, *shape == 'o' || *shape == 'g', 0, 0, 0)) return 5;
        say(getpid());
        wait_for_the_end();
    } else {
        say(getpid());
        wait_for_the_end();
    }
    return 0;
}
