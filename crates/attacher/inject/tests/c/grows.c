/* A process that is inspected before it has the thread that can be borrowed.
 * Says "ready"; at a line of input it makes a thread, on a stack that it maps then, which waits for a condition, and says
 * "grown". The first thread computes from then on. The end of input ends it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static atomic_int waits, ended;

static void *wait(void *unused) {
    pthread_mutex_lock(&lock);
    atomic_store(&waits, 1);
    while (!atomic_load(&ended)) pthread_cond_wait(&never, &lock);
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *end(void *unused) {
    while (getchar() != EOF) {}
    pthread_mutex_lock(&lock);
    atomic_store(&ended, 1);
    pthread_cond_broadcast(&never);
    pthread_mutex_unlock(&lock);
    return unused;
}

int main(void) {
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    pthread_t waiter, ender;
    if (pthread_create(&waiter, 0, wait, 0)) return 2;
    while (!atomic_load(&waits)) {}
    /* It waits once the lock is free. */
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    printf("grown\n");
    fflush(stdout);
    if (pthread_create(&ender, 0, end, 0)) return 3;
    volatile unsigned long sum = 0;
    while (!atomic_load(&ended)) sum = sum * 31 + 7;
    pthread_join(waiter, 0);
    pthread_join(ender, 0);
    return 0;
}
