/* io_uring with a thread of the kernel's that takes what is submitted (SQPOLL), and a thread that waits for what comes of it. */
#define _GNU_SOURCE
#include "work.h"
#include <errno.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WAIT_MS = 100 };

struct ring {
    int fd;
    struct io_uring_params params;
    char *submitted, *completed;
    struct io_uring_sqe *entries;
};

static _Atomic uint32_t *word(char *base, uint32_t offset) { return (_Atomic uint32_t *)(void *)(base + offset); }

static int set_up(struct ring *ring) {
    /* It looks for work for 5 ms after the last, then sleeps until it is woken: both happen in each round. */
    ring->params = (struct io_uring_params){.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 5};
    ring->fd = (int)syscall(SYS_io_uring_setup, 4, &ring->params);
    if (ring->fd < 0) return 0;
    const struct io_uring_params *p = &ring->params;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    ring->submitted = mmap(0, p->sq_off.array + p->sq_entries * 4, prot, flags, ring->fd, IORING_OFF_SQ_RING);
    ring->completed = mmap(0, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), prot, flags, ring->fd, IORING_OFF_CQ_RING);
    ring->entries = mmap(0, p->sq_entries * sizeof *ring->entries, prot, flags, ring->fd, IORING_OFF_SQES);
    return ring->submitted != MAP_FAILED && ring->completed != MAP_FAILED && (void *)ring->entries != MAP_FAILED;
}

/* A time limit as an operation of its own: it ends after 100 ms with ETIME. */
static void submit(struct ring *ring, const struct __kernel_timespec *time, uint64_t number) {
    const struct io_uring_params *p = &ring->params;
    _Atomic uint32_t *tail = word(ring->submitted, p->sq_off.tail);
    uint32_t at = *tail & *word(ring->submitted, p->sq_off.ring_mask);
    ring->entries[at] = (struct io_uring_sqe){
        .opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (uint64_t)(uintptr_t)time, .len = 1, .user_data = number};
    *word(ring->submitted, p->sq_off.array + at * 4) = at;
    atomic_store(tail, *tail + 1);
    if (atomic_load(word(ring->submitted, p->sq_off.flags)) & IORING_SQ_NEED_WAKEUP)
        syscall(SYS_io_uring_enter, ring->fd, 1, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
}

static void collect(struct slot *slot, struct ring *ring, uint64_t number) {
    const struct io_uring_params *p = &ring->params;
    _Atomic uint32_t *head = word(ring->completed, p->cq_off.head), *tail = word(ring->completed, p->cq_off.tail);
    while (atomic_load(tail) == *head)
        if (syscall(SYS_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0 && errno == EINTR) slot->eintr++;
    struct io_uring_cqe *all = (void *)(ring->completed + p->cq_off.cqes);
    struct io_uring_cqe got = all[*head & *word(ring->completed, p->cq_off.ring_mask)];
    CHECK(slot, got.user_data == number && got.res == -ETIME);
    atomic_store(head, *head + 1);
}

void do_sqpoll(struct slot *slot) {
    static struct ring ring;
    static const struct __kernel_timespec time = {0, WAIT_MS * 1000000l};
    uint64_t number = 0;
    if (!set_up(&ring)) { /* The cell asks beforehand whether it may be had. */
        CHECK(slot, 0);
        return;
    }
    do {
        uint64_t began = now_ns();
        submit(&ring, &time, ++number);
        collect(slot, &ring, number);
        CHECK(slot, now_ns() - began >= (WAIT_MS - 2) * 1000000ull);
    } while (round_done(slot));
}
