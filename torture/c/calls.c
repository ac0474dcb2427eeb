/* One thread per blocking system call. Each knows how long its call may last and what ends it, so that a call which something
 * else ends is seen: that is what an attach must not do. Calls with a time limit last 100 ms; the others are woken by feed(). */
#define _GNU_SOURCE
#include "work.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_MS = 100 };
static const struct timespec limit = {0, LIMIT_MS * 1000000l};

/* What feed() does, registered by those who wait. */
static struct { void (*wake)(int); int what; } feeds[64];
static _Atomic int feed_count;
static void woken_by(void (*wake)(int), int what) {
    int n = atomic_fetch_add(&feed_count, 1);
    feeds[n].what = what;
    __atomic_store_n(&feeds[n].wake, wake, __ATOMIC_RELEASE);
}
void feed(struct slot *slot) {
    do {
        struct timespec pause = {0, 20000000};
        if (nanosleep(&pause, 0)) slot->eintr++;
        for (int i = 0; i < feed_count; i++) {
            void (*wake)(int) = __atomic_load_n(&feeds[i].wake, __ATOMIC_ACQUIRE);
            if (wake) wake(feeds[i].what);
        }
        round_done(slot);
        /* To the end of the process: those who wait finish their round first. */
    } while (1);
}

/* A call that ends after its time limit, with `good` as its result. */
#define TIMED(call, good)                                                                  \
    do {                                                                                   \
        uint64_t began = now_ns();                                                         \
        long r = (call);                                                                   \
        int error = errno;                                                                 \
        if (r < 0 && error == EINTR) slot->eintr++;                                        \
        else {                                                                             \
            CHECK(slot, good);                                                             \
            CHECK(slot, now_ns() - began >= (LIMIT_MS - 2) * 1000000ull);                  \
        }                                                                                  \
        (void)error;                                                                       \
    } while (round_done(slot))

/* A call that another thread ends. */
#define FED(call, good)                                                                    \
    do {                                                                                   \
        long r = (call);                                                                   \
        if (r < 0 && errno == EINTR) slot->eintr++;                                        \
        else CHECK(slot, good);                                                            \
    } while (round_done(slot))

static void do_nanosleep(struct slot *slot) { TIMED(nanosleep(&limit, 0), r == 0); }
static void do_clock_nanosleep(struct slot *slot) {
    struct timespec at;
    TIMED((clock_gettime(CLOCK_MONOTONIC, &at), at.tv_nsec += LIMIT_MS * 1000000l,
           at.tv_nsec >= 1000000000 ? (at.tv_nsec -= 1000000000, at.tv_sec++) : 0,
           syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0)), r == 0);
}
static void do_poll(struct slot *slot) { TIMED(poll(0, 0, LIMIT_MS), r == 0); }
static void do_ppoll(struct slot *slot) { TIMED(ppoll(0, 0, &limit, 0), r == 0); }
static void do_select(struct slot *slot) {
    struct timeval time;
    TIMED((time = (struct timeval){0, LIMIT_MS * 1000}, select(0, 0, 0, 0, &time)), r == 0);
}
static void do_pselect(struct slot *slot) { TIMED(pselect(0, 0, 0, 0, &limit, 0), r == 0); }
static void do_futex_timed(struct slot *slot) {
    int word = 0;
    TIMED(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &limit, 0, 0), r < 0 && error == ETIMEDOUT);
}
static void do_epoll(struct slot *slot) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    TIMED(epoll_wait(fd, &event, 1, LIMIT_MS), r == 0);
}
static void do_epoll2(struct slot *slot) {
    int fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    // Linux before 5.11 has no second form.
    if (syscall(SYS_epoll_pwait2, -1, &event, 1, &limit, 0, 0) < 0 && errno == ENOSYS)
        TIMED(epoll_pwait(fd, &event, 1, LIMIT_MS, 0), r == 0);
    else
        TIMED(syscall(SYS_epoll_pwait2, fd, &event, 1, &limit, 0, 0), r == 0);
}
static void do_sigtimedwait(struct slot *slot) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, 0);
    TIMED(sigtimedwait(&set, 0, &limit), r < 0 && error == EAGAIN);
}
static void do_recv_timeo(struct slot *slot) {
    int pair[2];
    char c;
    struct timeval time = {0, LIMIT_MS * 1000};
    CHECK(slot, !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    TIMED(recv(pair[0], &c, 1, 0), r < 0 && error == EAGAIN);
}
static void do_semtimedop(struct slot *slot) {
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf take = {0, -1, 0};
    TIMED(semtimedop(id, &take, 1, &limit), r < 0 && error == EAGAIN);
}
static void do_io_uring(struct slot *slot) {
    struct io_uring_params params = {0};
    int fd = (int)syscall(SYS_io_uring_setup, 4, &params);
    if (fd < 0) { /* Not allowed here (kernel.io_uring_disabled, a filter): then there is nothing to watch. */
        strcpy(slot->kind, "no io_uring");
        while (round_done(slot)) nanosleep(&limit, 0);
        return;
    }
    struct io_uring_getevents_arg arg = {.ts = (uint64_t)(uintptr_t)&limit};
    TIMED(syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg),
          r < 0 && error == ETIME);
}

static _Atomic int fed_word;
static void wake_futex(int what) {
    (void)what;
    atomic_fetch_add(&fed_word, 1);
    syscall(SYS_futex, &fed_word, FUTEX_WAKE, 1, 0, 0, 0);
}
static void do_futex(struct slot *slot) {
    woken_by(wake_futex, 0);
    FED(syscall(SYS_futex, &fed_word, FUTEX_WAIT, atomic_load(&fed_word), 0, 0, 0), r == 0 || errno == EAGAIN);
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static void wake_condition(int what) { (void)what; pthread_cond_broadcast(&condition); }
static void do_cond(struct slot *slot) {
    woken_by(wake_condition, 0);
    pthread_mutex_lock(&lock);
    FED(-pthread_cond_wait(&condition, &lock), r == 0);
    pthread_mutex_unlock(&lock);
}
static sem_t semaphore; /* As it is it has the value 0. */
static void wake_sem(int what) { (void)what; sem_post(&semaphore); }
static void do_sem(struct slot *slot) {
    woken_by(wake_sem, 0);
    FED(sem_wait(&semaphore), r == 0);
}
static void wake_write(int fd) { (void)!write(fd, "x", 1); }
static void do_read(struct slot *slot) {
    int pair[2];
    char c;
    CHECK(slot, !pipe2(pair, O_CLOEXEC));
    woken_by(wake_write, pair[1]);
    FED(read(pair[0], &c, 1), r == 1);
}
static void drain(int fd) { char some[65536]; (void)!read(fd, some, sizeof some); }
static void do_write(struct slot *slot) {
    static const char some[65536];
    int pair[2];
    CHECK(slot, !pipe2(pair, O_CLOEXEC));
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    woken_by(drain, pair[0]);
    FED(write(pair[1], some, sizeof some), r == sizeof some);
}
static void do_timerfd(struct slot *slot) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    struct itimerspec time = {limit, limit};
    timerfd_settime(fd, 0, &time, 0);
    uint64_t count;
    FED(read(fd, &count, 8), r == 8);
}
static void touch(int fd) { (void)!pwrite(fd, "x", 1, 0); }
static void do_inotify(struct slot *slot) {
    char path[64], events[4096];
    snprintf(path, sizeof path, "/proc/self/fd/%d", open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    int fd = inotify_init1(IN_CLOEXEC), file = atoi(path + 14);
    CHECK(slot, inotify_add_watch(fd, path, IN_MODIFY) >= 0);
    woken_by(touch, file);
    FED(read(fd, events, sizeof events), r > 0);
}
static void wake_send(int fd) { send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }
static void do_recv(struct slot *slot) {
    int pair[2];
    char c;
    CHECK(slot, !socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    woken_by(wake_send, pair[1]);
    FED(recv(pair[0], &c, 1, 0), r == 1);
}
static void connect_to(int listener) {
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    getsockname(listener, (struct sockaddr *)&name, &size);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)!connect(fd, (struct sockaddr *)&name, size);
    close(fd);
}
static void do_accept(struct slot *slot) {
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(slot, !bind(fd, (struct sockaddr *)&any, sizeof(sa_family_t)) && !listen(fd, 4));
    woken_by(connect_to, fd);
    int got = -1;
    FED((got = accept4(fd, 0, 0, SOCK_CLOEXEC)), (close(got), r >= 0));
}
static pid_t child_for(long ms) {
    pid_t child = fork();
    if (!child) {
        struct timespec time = {0, ms * 1000000};
        nanosleep(&time, 0);
        _exit(3);
    }
    return child;
}
static void do_wait4(struct slot *slot) {
    do {
        pid_t child = child_for(LIMIT_MS);
        int status, r;
        while ((r = waitpid(child, &status, 0)) < 0 && errno == EINTR) slot->eintr++;
        CHECK(slot, r == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    } while (round_done(slot));
}
static void do_waitid(struct slot *slot) {
    do {
        pid_t child = child_for(LIMIT_MS);
        siginfo_t info;
        int r;
        while ((r = waitid(P_PID, (id_t)child, &info, WEXITED)) < 0 && errno == EINTR) slot->eintr++;
        CHECK(slot, r == 0 && info.si_status == 3);
    } while (round_done(slot));
}
static void do_vfork(struct slot *slot) {
    do {
        pid_t child = vfork();
        if (!child) {
            syscall(SYS_nanosleep, &limit, 0);
            _exit(3);
        }
        int status, r;
        while ((r = waitpid(child, &status, 0)) < 0 && errno == EINTR) slot->eintr++;
        CHECK(slot, r == child && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    } while (round_done(slot));
}
static int lock_file(void) { return open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); }
static int second(int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, O_RDWR | O_CLOEXEC);
}
/* The waiter leaves it free a little longer than we do. */
static const struct timespec mine = {0, 1000000}, theirs = {0, 3000000};
static int freed(struct slot *slot, long r) {
    if (nanosleep(&theirs, 0)) slot->eintr++;
    return r == 0;
}
static void pass_flock(int fd) {
    flock(fd, LOCK_UN);
    nanosleep(&mine, 0);
    flock(fd, LOCK_EX | LOCK_NB);
}
static void do_flock(struct slot *slot) {
    int own = lock_file(), other = second(own);
    flock(other, LOCK_EX);
    woken_by(pass_flock, other);
    FED(flock(own, LOCK_EX), (flock(own, LOCK_UN), freed(slot, r)));
}
static int set_lock(int fd, int call, short type) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(fd, call, &lock);
}
static void pass_setlk(int fd) {
    set_lock(fd, F_OFD_SETLK, F_UNLCK);
    nanosleep(&mine, 0);
    set_lock(fd, F_OFD_SETLK, F_WRLCK);
}
static void do_setlkw(struct slot *slot) {
    int own = lock_file(), other = second(own);
    set_lock(other, F_OFD_SETLK, F_WRLCK);
    woken_by(pass_setlk, other);
    FED(set_lock(own, F_OFD_SETLKW, F_WRLCK), (set_lock(own, F_OFD_SETLK, F_UNLCK), freed(slot, r)));
}
struct message { long type; char text[4]; };
static void send_message(int id) {
    struct message message = {1, "hey"};
    msgsnd(id, &message, sizeof message.text, IPC_NOWAIT);
}
static void do_msgrcv(struct slot *slot) {
    int id = msgget(IPC_PRIVATE, 0600);
    struct message message;
    woken_by(send_message, id);
    FED(msgrcv(id, &message, sizeof message.text, 0, 0), r == sizeof message.text);
}
static pthread_t signalled[16];
static _Atomic int signalled_count;
static void wake_thread(int which) { pthread_kill(signalled[which], SIGUSR1); }
static void woken_by_signal(void) {
    int n = atomic_fetch_add(&signalled_count, 1);
    signalled[n] = pthread_self();
    woken_by(wake_thread, n);
}
/* These end by a signal only: without one that a handler saw, something else ended them. */
static void do_pause(struct slot *slot) {
    woken_by_signal();
    do {
        uint64_t before = slot->signals;
        pause();
        if (slot->signals == before) slot->eintr++;
    } while (round_done(slot));
}
static void do_sigsuspend(struct slot *slot) {
    sigset_t block, open;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &block, &open);
    woken_by_signal();
    do {
        uint64_t before = slot->signals;
        sigsuspend(&open);
        if (slot->signals == before) slot->eintr++;
    } while (round_done(slot));
}
/* Waits for ever, and no thread wakes it: the thread that an attach should choose. */
static void do_parked(struct slot *slot) {
    int pair[2];
    char c;
    CHECK(slot, !pipe2(pair, O_CLOEXEC));
    for (;;) {
        slot->rounds++;
        if (read(pair[0], &c, 1) < 0 && errno == EINTR) slot->eintr++;
    }
}

job calling_job(const char *kind) {
    static const struct { const char *kind; job job; } jobs[] = {
        {"nanosleep", do_nanosleep}, {"clock_nanosleep", do_clock_nanosleep}, {"poll", do_poll}, {"ppoll", do_ppoll},
        {"select", do_select}, {"pselect", do_pselect}, {"futex_timed", do_futex_timed}, {"epoll", do_epoll},
        {"epoll2", do_epoll2}, {"sigtimedwait", do_sigtimedwait}, {"recv_timeo", do_recv_timeo}, {"semtimedop", do_semtimedop},
        {"io_uring", do_io_uring}, {"futex", do_futex}, {"cond", do_cond}, {"sem", do_sem}, {"read", do_read},
        {"write", do_write}, {"timerfd", do_timerfd}, {"inotify", do_inotify}, {"recv", do_recv}, {"accept", do_accept},
        {"wait4", do_wait4}, {"waitid", do_waitid}, {"vfork", do_vfork}, {"flock", do_flock}, {"setlkw", do_setlkw},
        {"msgrcv", do_msgrcv}, {"pause", do_pause}, {"sigsuspend", do_sigsuspend}, {"parked", do_parked}, {"feed", feed},
        {"sqpoll", do_sqpoll}, {"disk", do_disk},
    };
    for (unsigned i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (!strcmp(kind, jobs[i].kind)) return jobs[i].job;
    return 0;
}
