/* A program that is given the set-uid bit, and registers a runtime as HIP does.
 *
 *   raised_runtime REGISTER-LIBRARY
 *
 * Says "registered RESULT UID EFFECTIVE". */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static void import(void) {}

int main(int count, char **words) {
    typedef uint32_t (*register_t)(const char *, void (*)(void), uint32_t, void **, uint64_t, void *);
    if (count != 2) return 2;
    void *library = dlopen(words[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    register_t function = (register_t)dlsym(library, "rocprofiler_register_library_api_table");
    if (!function) return 4;
    static uint64_t table[64];
    void *tables[1] = {table};
    uint64_t id = 0;
    uint32_t result = function("hip", import, 70000, tables, 1, &id);
    printf("registered %u %d %d\n", result, (int)getuid(), (int)geteuid());
    return 0;
}
