/* An allocator that is not the C library's. */
#include <stddef.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void  __libc_free(void*);

#define EXPORT __attribute__((visibility("default")))

EXPORT void* malloc(size_t size) { return __libc_malloc(size); }
EXPORT void* calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
EXPORT void* realloc(void* at, size_t size) { return __libc_realloc(at, size); }
EXPORT void  free(void* at) { __libc_free(at); }
