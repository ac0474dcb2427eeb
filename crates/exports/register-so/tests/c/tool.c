/* A stand-in tool: says that it was configured. */
#include <stdint.h>
#include <stdio.h>

__attribute__((visibility("default"))) void* rocprofiler_configure(uint32_t version, const char* text, uint32_t priority, void* id)
{
    (void)priority;
    (void)id;
    printf("  tool: configure %u %s\n", version, text);
    return NULL;
}
