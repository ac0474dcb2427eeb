// launcher N PROGRAM: starts N copies of "PROGRAM rank I", as a launcher of ranks does, and has no
// GPU runtime itself. Each line of standard input goes to every rank, but "spawn", which starts one
// more, and "quit", after which it waits for all and says "done" with the number of those that did
// not exit with 0.
#include "kit.h"
#include <sys/wait.h>

enum { MOST = 64 };
static FILE *to[MOST];
static unsigned ranks;

static void spawn(const char *program) {
  int pipes[2];
  char number[16];
  if (ranks == MOST || pipe2(pipes, 02000000)) fail("no room for a rank");
  snprintf(number, sizeof number, "%u", ranks);
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    dup2(pipes[0], 0);
    execl(program, program, "rank", number, (char *)NULL);
    _exit(127);
  }
  close(pipes[0]);
  to[ranks++] = fdopen(pipes[1], "w");
}

int main(int argc, char **argv) {
  if (argc != 3) fail("usage: launcher N PROGRAM");
  for (int n = atoi(argv[1]); n > 0; n--) spawn(argv[2]);
  char line[128];
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (!strcmp(line, "spawn")) {
      spawn(argv[2]);
      continue;
    }
    for (unsigned n = 0; n < ranks; n++) {
      fprintf(to[n], "%s\n", line);
      fflush(to[n]);
    }
  }
  unsigned bad = 0;
  for (unsigned n = 0; n < ranks; n++) fclose(to[n]);
  for (unsigned n = 0; n < ranks; n++) {
    int status;
    wait(&status);
    bad += status != 0;
  }
  say("done %u", bad);
  return 0;
}
