/* A stand-in runtime: registers "hip" from its constructor. */
#include <rocprofiler-register/rocprofiler-register.h>
#include <stdio.h>

ROCPROFILER_REGISTER_DEFINE_IMPORT(hip, ROCPROFILER_REGISTER_COMPUTE_VERSION_3(7, 2, 4))

static uint64_t table[2] = {16, 0};

__attribute__((constructor)) static void begin(void)
{
    void*                                      tables[1] = {table};
    rocprofiler_register_library_indentifier_t id;
    printf("  runtime: hip %d\n",
           (int)rocprofiler_register_library_api_table("hip", &rocprofiler_register_import_hip, rocprofiler_register_import_hip(), tables, 1, &id));
}
