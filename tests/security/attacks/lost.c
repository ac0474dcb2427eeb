// lost LIBRARY...: loads libraries and waits until its standard input ends. NAME in its environment becomes the name of
// the process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

int main(int count, char **words) {
  if (getenv("NAME")) prctl(PR_SET_NAME, getenv("NAME"));
  for (int n = 1; n < count; n++)
    if (!dlopen(words[n], RTLD_NOW | RTLD_LOCAL)) return fprintf(stderr, "%s\n", dlerror()), 1;
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF) {}
  return 0;
}
