/* A stand-in for the attach library of the attaching side. */
#include <stdint.h>
#include <stdio.h>

#ifndef WHO
#define WHO "rocattach"
#endif

__attribute__((visibility("default"))) void attach(uint32_t pid) { printf("  " WHO ": attach %u\n", pid); }
__attribute__((visibility("default"))) void detach(void) { printf("  " WHO ": detach\n"); }
