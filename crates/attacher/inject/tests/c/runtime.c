/* A stand-in for a GPU runtime: waits of a program that lie inside a library. */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

int runtime_poll(int fd) {
    struct pollfd p = {fd, POLLIN, 0};
    char byte;
    int result = poll(&p, 1, -1);
    return result < 0 || read(fd, &byte, 1) != 1 ? -1 : result;
}

void runtime_cond(atomic_int *word, int until_not) {
    pthread_mutex_lock(&lock);
    while (atomic_load(word) == until_not) pthread_cond_wait(&cond, &lock);
    pthread_mutex_unlock(&lock);
}

void runtime_wake(void) {
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
}
