/* A stand-in runtime: registers "hip", or NAME, from its constructor. SDK_THAT_REFUSES: a stand-in SDK that refuses each table. */
#include <rocprofiler-register/rocprofiler-register.h>
#include <stdio.h>

#ifdef SDK_THAT_REFUSES
__attribute__((visibility("default"))) int rocprofiler_set_api_table(const char* name, uint64_t version, uint64_t instance, void** tables, uint64_t count);
__attribute__((visibility("default"))) int rocprofiler_set_api_table(const char* name, uint64_t version, uint64_t instance, void** tables, uint64_t count)
{
    return name && version && tables && count && instance < 8 ? 7 : 8;
}
#else
#    ifndef NAME
#        define NAME hip
#    endif
#    define TEXT_OF(name) #name
#    define TEXT(name) TEXT_OF(name)
#    define IMPORT_OF(name) rocprofiler_register_import_##name
#    define IMPORT(name) IMPORT_OF(name)
#    define DEFINE_IMPORT(name) ROCPROFILER_REGISTER_DEFINE_IMPORT(name, ROCPROFILER_REGISTER_COMPUTE_VERSION_3(7, 2, 4))

DEFINE_IMPORT(NAME)

static uint64_t table[2] = {16, 0};

__attribute__((constructor)) static void begin(void)
{
    void*                                      tables[1] = {table};
    rocprofiler_register_library_indentifier_t id;
    printf("  runtime: %s %d\n", TEXT(NAME),
           (int)rocprofiler_register_library_api_table(TEXT(NAME), &IMPORT(NAME), IMPORT(NAME)(), tables, 1, &id));
}
#endif
