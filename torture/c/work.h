/* Threads that are busy with work of their own, and check it. */
#ifndef WORK_H
#define WORK_H
#include "state.h"

typedef void (*job)(struct slot *);

/* Ends a round: counts it, notes the gap. 1 when the work is to go on. */
int round_done(struct slot *slot);
void is_wrong(struct slot *slot, int line);
#define CHECK(slot, condition) ((condition) ? (void)0 : is_wrong(slot, __LINE__))
uint64_t now_ns(void);

job busy_job(const char *kind);
job calling_job(const char *kind);
/* Of the jobs in calls.c: what wakes them, every 20 ms. */
void feed(struct slot *slot);
/* Signals that the handler of this thread saw. */
extern _Thread_local struct slot *own;
extern struct state *state;
extern _Atomic int may_fork;
/* How long threads of the kind "nap" sleep at a time. */
extern long nap_ns;
/* Waits with results of their own: io_uring, and a file system that takes its time and must be mounted first. 0: it cannot be had. */
void do_sqpoll(struct slot *slot);
void do_disk(struct slot *slot);
int mount_disk(const char *directory);
/* Registers a runtime with AMD's register library (or ours), and waits for the listener where one was asked for, or for its socket. 0: that
 * failed. */
int meet_amd(int with_socket);
#endif
