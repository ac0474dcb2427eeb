// What probe libraries share: each call of theirs becomes a line of the file PROBE_LOG.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

__attribute__((unused)) static void note(const char *what) {
  const char *path = getenv("PROBE_LOG");
  char line[128];
  int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
  if (file < 0) return;
  int size = snprintf(line, sizeof line, "%s\n", what);
  if (write(file, line, size) != size) abort();
  close(file);
}
