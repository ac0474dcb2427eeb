// Calls of libraries above HIP (tests/src/libraries.rs makes them). "calls N": N rounds of a call of
// each shape: none and many arguments, structs by value, texts as results. "quit" ends it.
#include "kit.h"
#include <stddef.h>

typedef struct { char internal[128]; } id_t_;
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
int ncclAllToAllv(const void *, const size_t *, const size_t *, void *, const size_t *, const size_t *, int, void *, void *);
int ncclCommInitRank(void **, int, id_t_, int);
const char *ncclGetErrorString(int);
int ncclCommDeregister(void *, void *);
int rocDecGetDecodeStatus(void *, int, void *);
int rocDecGetVideoFrame(void *, int, void **, unsigned *, void *);
const char *rocDecGetErrorName(int);
int rocJpegCreate(int, int, void **);
int rocJpegStreamParse(const unsigned char *, size_t, void *);
const char *rocJpegGetErrorName(int);

static void *at(unsigned long address) { return (void *)address; }

static void round_of_calls(void) {
  id_t_ id = {{1}};
  id.internal[127] = 2;
  if (ncclCommInitRank(at(16), 8, id, 3)) fail("ncclCommInitRank");
  if (ncclGroupStart()) fail("ncclGroupStart");
  if (ncclAllReduce(at(32), at(48), 1024, 7, 0, at(64), at(80))) fail("ncclAllReduce");
  if (ncclAllToAllv(at(1), at(2), at(3), at(4), at(5), at(6), 7, at(8), at(9))) fail("ncclAllToAllv");
  if (ncclGroupEnd()) fail("ncclGroupEnd");
  if (strcmp(ncclGetErrorString(2), "a text")) fail("ncclGetErrorString");
  if (ncclCommDeregister(at(64), at(96))) fail("ncclCommDeregister");
  if (rocDecGetDecodeStatus(at(16), -1, at(32))) fail("rocDecGetDecodeStatus");
  if (rocDecGetVideoFrame(at(16), 5, at(32), at(48), at(64))) fail("rocDecGetVideoFrame");
  if (strcmp(rocDecGetErrorName(1), "a text")) fail("rocDecGetErrorName");
  if (rocJpegCreate(1, 2, at(16))) fail("rocJpegCreate");
  if (rocJpegStreamParse(at(16), 4096, at(32))) fail("rocJpegStreamParse");
  if (strcmp(rocJpegGetErrorName(3), "a text")) fail("rocJpegGetErrorName");
}

int main(void) {
  char line[64];
  unsigned long rounds;
  // The libraries make their tables in their first calls.
  round_of_calls();
  say("ready");
  while (hear(line, sizeof line) && strcmp(line, "quit")) {
    if (sscanf(line, "calls %lu", &rounds) != 1) fail("unknown command \"%s\"", line);
    while (rounds--) round_of_calls();
    say("calls");
  }
  say("done");
  return 0;
}
