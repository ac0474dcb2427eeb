/* Listens on COUNT abstract sockets whose names begin as a listener's would, and look like one: squat PREFIX COUNT. Ends when its
 * standard input does. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char** words)
{
    if(count != 3) return 2;
    struct rlimit many = {4096, 4096};
    setrlimit(RLIMIT_NOFILE, &many);
    for(int i = 0; i < atoi(words[2]); ++i)
    {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        /* The forms of today and of earlier builds. */
        const char* form = i % 2 ? "%s%016x/%d" : "%s%x/%d";
        int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, form, words[1], i % 2 ? i : i / 2 % 4, i % 2 ? 0 : i / 8);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if(fd < 0 || bind(fd, (struct sockaddr*)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)))
        {
            /* The process's own, where such a name is no secret. */
            if(errno == EADDRINUSE) continue;
            perror(words[1]);
            return 3;
        }
        if(listen(fd, 4))
        {
            perror(words[1]);
            return 3;
        }
    }
    printf("squats\n");
    fflush(stdout);
    char byte;
    while(read(0, &byte, 1) > 0) {}
    return 0;
}
