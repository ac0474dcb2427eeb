/* A program that is given the set-uid bit. Says "other UID EFFECTIVE" and exits with 5 at the end of its input. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
    char line[256];
    printf("other %d %d\n", (int)getuid(), (int)geteuid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
    }
    return 5;
}
