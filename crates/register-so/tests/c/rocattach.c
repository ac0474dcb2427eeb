/* A stand-in for the attach library of the attaching side. */
#include <stdint.h>
#include <stdio.h>

__attribute__((visibility("default"))) void attach(uint32_t pid) { printf("  rocattach: attach %u\n", pid); }
__attribute__((visibility("default"))) void detach(void) { printf("  rocattach: detach\n"); }
