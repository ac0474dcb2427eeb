/* What a target tells of itself, in a file that both sides have mapped or read: nothing is asked of the target, so no thread of it
 * has to listen. `torture/src/state.rs` reads the same layout. */
#ifndef STATE_H
#define STATE_H
#include <stdatomic.h>
#include <stdint.h>

enum { SLOTS = 1024, STATE_MAGIC = 0x746f7274 };

struct slot {
    _Atomic int32_t tid;       /* 0: not used */
    char kind[16];             /* what it does */
    _Atomic uint32_t epoch;    /* that its gap is of */
    _Atomic uint64_t rounds;   /* of its own work */
    _Atomic uint64_t wrong;    /* of its own checks that failed */
    _Atomic uint64_t eintr;    /* calls that ended early though nobody sent it a signal */
    _Atomic uint64_t gap;      /* longest time between two rounds since `epoch` changed, ns; busy threads only */
    _Atomic uint64_t signals;  /* that its handlers saw */
};

struct state {
    uint32_t magic;
    _Atomic uint32_t stop;     /* written from outside: end */
    _Atomic uint32_t epoch;    /* written from outside: gaps begin anew */
    _Atomic uint32_t mark;     /* counted up by each probe library that came in */
    _Atomic uint32_t ready;
    _Atomic uint32_t used;     /* slots */
    _Atomic int32_t line;      /* of the first check that failed */
    int32_t pid;               /* as it knows itself */
    uint32_t pad[8];
    struct slot slots[SLOTS];
};
#endif
