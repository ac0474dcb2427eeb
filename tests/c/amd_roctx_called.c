// As amd_roctx.c; each function calls the one that gives the object.
#define WAY __attribute__((noinline))
#include "amd_roctx.c"
