/* A stand-in for the library that an attacher sends. It says what it was given, and then does what each message says. The offsets of the
 * boot block's members come from its Rust definition. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int32_t* member(void* block, size_t offset) { return (int32_t*)(void*)((char*)block + offset); }

static int32_t get(void* block, size_t offset) { return __atomic_load_n(member(block, offset), __ATOMIC_SEQ_CST); }
static void    set(void* block, size_t offset, int32_t value) { __atomic_store_n(member(block, offset), value, __ATOMIC_SEQ_CST); }

static void say(int near, const char* what) { send(near, what, strlen(what), MSG_NOSIGNAL); }

/* Parks until the listener hands over a connection, and returns that. */
static int park(void* block, int near)
{
    set(block, FD_NEAR, -1);
    set(block, MAILBOX, PARKED);
    close(near);
    while(get(block, MAILBOX) != HANDED) syscall(SYS_futex, member(block, MAILBOX), FUTEX_WAIT_PRIVATE, PARKED, NULL);
    near = __atomic_exchange_n(member(block, HANDED_FD), 0, __ATOMIC_SEQ_CST) - 1;
    set(block, MAILBOX, TALKING);
    set(block, FD_NEAR, near);
    say(near, "woken");
    return near;
}

__attribute__((visibility("default"))) void midair_agent_enter(void* block)
{
    char text[100];
    int  near = get(block, FD_NEAR);
    snprintf(text, sizeof text, "near %d far %d patience %d mailbox %d", near, get(block, FD_FAR), get(block, PATIENCE_MS), get(block, MAILBOX));
    say(near, text);
    for(char order; recv(near, &order, 1, 0) == 1;)
    {
        if(order == 'p') near = park(block, near);
        else if(order == 'f')
        {
            set(block, ERROR_STEP, 5);
            set(block, ERROR, 16);
            return;
        }
        else if(order == 't')
        {
            /* The program has a file of its own at that number. */
            int null = open("/dev/null", O_RDONLY);
            dup2(null, near);
            close(null);
            return;
        }
        else return;
    }
}
