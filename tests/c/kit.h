// What every test program needs: lines out, commands in, and a plain way to fail.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Prints one line at once: the test waits for it.
__attribute__((format(printf, 1, 2), unused)) static void say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  // One lock for all of it: each call by itself would let another thread's line between this one and its end.
  flockfile(stdout);
  vprintf(format, args);
  putchar('\n');
  fflush(stdout);
  funlockfile(stdout);
  va_end(args);
}

// Something is wrong: the reason goes to stderr, the exit code is 1. _exit, since other threads may be anywhere.
__attribute__((format(printf, 1, 2), noreturn, unused)) static void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  fflush(stdout);
  _exit(1);
}

// Reads the next command into `line` without its newline; false at the end of input.
__attribute__((unused)) static bool hear(char *line, int size) {
  if (!fgets(line, size, stdin)) return false;
  line[strcspn(line, "\n")] = 0;
  return true;
}

// The next command must be this one.
__attribute__((unused)) static void hear_only(const char *command) {
  char line[64];
  if (!hear(line, sizeof line)) fail("end of input instead of \"%s\"", command);
  if (strcmp(line, command)) fail("\"%s\" instead of \"%s\"", line, command);
}

__attribute__((unused)) static pthread_t start_thread(void *(*body)(void *), void *argument) {
  pthread_t thread;
  int error = pthread_create(&thread, NULL, body, argument);
  if (error) fail("pthread_create: %s", strerror(error));
  return thread;
}
