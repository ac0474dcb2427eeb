/* A peer of a listener that speaks its protocol by hand: peer PID NAME VERSION HOW. NAME is the socket's, VERSION the protocol's.
 *
 *   read    reads the token and sends it back, as it should
 *   guess   sends back what it has not read
 *   lend    another process of its own sends the token back
 *   dead    sends the token back and ends, before the process gets round to reading it; another process keeps the connection open
 *   reused  the same, and a new process gets its number
 *   stranger  connects again and again (HOW is "stranger UID COUNT"), as another user
 *
 * Prints "reply OUTCOME ERROR", with a session asked for; exits with 77 where the kernel or the user's rights do not do. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

struct request
{
    char     magic[8];
    uint32_t version, purpose;
};

struct reply
{
    char     magic[8];
    uint32_t version, outcome, step;
    int32_t  error;
    uint32_t tid;
    int32_t  library_fd;
    uint32_t gpu, reserved;
    uint64_t token_at;
    char     text[512];
};

struct proof
{
    char magic[8];
    char secret[32];
};

enum
{
    ATTACH    = 1,
    CHALLENGE = 9,
    MARK      = 16,
};

static void fail(const char* what)
{
    perror(what);
    exit(4);
}

static int to(const char* name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path + 1, name, sizeof address.sun_path - 2);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if(fd < 0 || connect(fd, (struct sockaddr*)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)))) fail("connect");
    return fd;
}

static struct reply hear(int fd)
{
    struct reply reply = {0};
    if(recv(fd, &reply, sizeof reply, 0) != sizeof reply) fail("no reply");
    return reply;
}

static void tell(int fd)
{
    struct reply reply = hear(fd);
    printf("reply %u %d\n", reply.outcome, reply.error);
    fflush(stdout);
}

/* Asks for a session, and reads the token. */
static struct proof ask(int fd, int pid, unsigned version, int guess)
{
    struct request request = {"midair\0K", version, ATTACH};
    if(send(fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request) fail("request");
    struct reply reply = hear(fd);
    if(reply.outcome != CHALLENGE)
    {
        printf("reply %u %d\n", reply.outcome, reply.error);
        exit(0);
    }
    struct proof proof = {"midair\0P", {0}};
    if(guess) return proof;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    if(memory < 0 || pread(memory, proof.secret, sizeof proof.secret, (off_t)reply.token_at + MARK) != sizeof proof.secret) fail(path);
    close(memory);
    return proof;
}

static void answer(int fd, const struct proof* proof)
{
    if(send(fd, proof, sizeof *proof, MSG_NOSIGNAL) != sizeof *proof) fail("proof");
}

/* Waits until all its threads stand still. */
static void stop(int pid)
{
    if(kill(pid, SIGSTOP)) fail("SIGSTOP");
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for(;;)
    {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t got = read(fd, text, sizeof text - 1);
        close(fd);
        if(got <= 0) fail(path);
        text[got] = 0;
        char* end = strrchr(text, ')');
        if(end && end[2] == 'T') return;
        usleep(1000);
    }
}

/* A process that sends the token back and ends; its parent's parent has the connection all the same. */
static void end_before_it_is_read(int pid, const char* name, unsigned version, int reuse)
{
    int pair[2];
    if(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) fail("socketpair");
    int peer = fork();
    if(peer == 0)
    {
        int          fd    = to(name);
        struct proof proof = ask(fd, pid, version, 0);
        stop(pid);
        answer(fd, &proof);
        char            room[CMSG_SPACE(sizeof fd)] = {0};
        struct iovec    byte                        = {"x", 1};
        struct msghdr   message                     = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        struct cmsghdr* header                      = CMSG_FIRSTHDR(&message);
        header->cmsg_level                          = SOL_SOCKET;
        header->cmsg_type                           = SCM_RIGHTS;
        header->cmsg_len                            = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        if(sendmsg(pair[1], &message, 0) != 1) fail("sendmsg");
        _exit(0);
    }
    char          byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec  part    = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    close(pair[1]);
    if(recvmsg(pair[0], &message, 0) != 1) exit(4);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    if(waitpid(peer, NULL, 0) != peer) fail("waitpid");
    int heir = 0;
    if(reuse)
    {
        int64_t           wanted = peer;
        pid_t             set    = (pid_t)wanted;
        struct clone_args how    = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&set, .set_tid_size = 1};
        heir                     = (int)syscall(SYS_clone3, &how, sizeof how);
        if(heir == 0)
        {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for(;;) pause();
        }
        if(heir < 0)
        {
            perror("a process of that number");
            kill(pid, SIGCONT);
            exit(77);
        }
    }
    if(kill(pid, SIGCONT)) fail("SIGCONT");
    tell(fd);
    if(heir > 0)
    {
        kill(heir, SIGKILL);
        waitpid(heir, NULL, 0);
    }
}

int main(int count, char** words)
{
    if(count < 5) return 2;
    int         pid     = atoi(words[1]);
    const char* name    = words[2];
    unsigned    version = (unsigned)atoi(words[3]);
    const char* how     = words[4];
    if(!strcmp(how, "read") || !strcmp(how, "guess") || !strcmp(how, "lend"))
    {
        int          fd    = to(name);
        struct proof proof = ask(fd, pid, version, how[0] == 'g');
        if(how[0] == 'l')
        {
            int child = fork();
            if(child == 0)
            {
                answer(fd, &proof);
                _exit(0);
            }
            if(waitpid(child, NULL, 0) != child) fail("waitpid");
        }
        else answer(fd, &proof);
        tell(fd);
    }
    else if(!strcmp(how, "dead") || !strcmp(how, "reused")) end_before_it_is_read(pid, name, version, how[0] == 'r');
    else if(!strcmp(how, "stranger") && count == 7)
    {
        unsigned id = (unsigned)atoi(words[5]);
        if(setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id)) return 77;
        struct reply reply = {0};
        for(int i = atoi(words[6]); i > 0; --i)
        {
            int fd = to(name);
            reply  = hear(fd);
            close(fd);
        }
        printf("reply %u %d\n", reply.outcome, reply.error);
    }
    else return 2;
    return 0;
}
