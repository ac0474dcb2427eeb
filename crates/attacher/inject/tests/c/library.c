/* A library as the engine loads it: the protocol of the boot block, and nothing else.
 * Says "hello"; then "park": waits to be woken; "end": returns; "crash on load" is for others. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct boot {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t mailbox;
    int32_t near, far;
    uint32_t between[6];
    uint64_t addresses[18];
    uint32_t patience_ms;
    _Atomic uint32_t handed;
};
enum { OPEN = 2, TALKING = 3, PARKED = 4, KICK = 5, HANDED = 8 };

#ifdef NUMBER
int agent_number = NUMBER;
#endif

void midair_agent_enter(struct boot *boot) {
    char word[64];
    /* The division is inexact: a thread with its maker's floating point traps would die here. */
    volatile double third = 1;
    third = third / 3;
    for (;;) {
        if (send(boot->near, "hello", 5, MSG_NOSIGNAL) != 5) return;
        ssize_t n = recv(boot->near, word, sizeof word, 0);
        if (n < 4 || memcmp(word, "park", 4)) return;
        close(boot->near);
        boot->near = -1;
        atomic_store(&boot->mailbox, PARKED);
        uint32_t woken;
        while ((woken = atomic_load(&boot->mailbox)) != KICK && woken != HANDED)
            syscall(SYS_futex, &boot->mailbox, FUTEX_WAIT, PARKED, 0, 0, 0);
        if (woken == HANDED) {
            boot->near = (int32_t)atomic_exchange(&boot->handed, 0) - 1;
            atomic_store(&boot->mailbox, TALKING);
            if (recv(boot->near, word, sizeof word, 0) <= 0) return;
            continue;
        }
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) return;
        boot->near = pair[0];
        boot->far = pair[1];
        atomic_store(&boot->mailbox, OPEN);
        struct pollfd p = {pair[0], POLLIN, 0};
        int any = poll(&p, 1, (int)boot->patience_ms);
        close(pair[1]);
        boot->far = -1;
        atomic_store(&boot->mailbox, TALKING);
        if (any <= 0 || recv(boot->near, word, sizeof word, 0) <= 0) return;
    }
}
