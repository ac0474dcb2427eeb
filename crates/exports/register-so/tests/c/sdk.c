/* A stand-in SDK that prints how it is used. Built in several forms:
 * ATTACH: has attach and detach. LOAD_TOOL: also loads tools by name. OURS: has the symbol by which midair's SDK is recognised. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef void* configure_t(uint32_t, const char*, uint32_t, void*);

static const char* env(const char* name) { return getenv(name) ? getenv(name) : "-"; }

static int load(const char* path)
{
    void* tool = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    printf("  sdk: tool %s %s\n", strrchr(path, '/') ? strrchr(path, '/') + 1 : path, tool ? "loaded" : "missing");
    configure_t* configure = tool ? (configure_t*)dlsym(tool, "rocprofiler_configure") : NULL;
    if(configure) configure(10201, "1.2.1", 0, NULL);
    return configure ? 0 : 1;
}

EXPORT int rocprofiler_set_api_table(const char* name, uint64_t version, uint64_t instance, void** tables, uint64_t count)
{
    static int first = 1;
    if(first && getenv("ROCP_TOOL_LIBRARIES")) load(getenv("ROCP_TOOL_LIBRARIES"));
    first = 0;
    uint64_t size;
    memcpy(&size, tables[0], sizeof size);
    printf("  sdk: set %s %lu %lu %lu size %lu\n", name, version, instance, count, size);
    if(getenv("PROBE_RECURSE"))
    {
        uint64_t id;
        int (*again)(const char*, void*, uint32_t, void**, uint64_t, uint64_t*) = dlsym(RTLD_DEFAULT, "rocprofiler_register_library_api_table");
        printf("  sdk: register again %d\n", again("hip", NULL, 1, tables, 1, &id));
    }
    return strcmp(env("PROBE_REFUSES"), name) == 0 ? 7 : 0;
}

#ifdef ATTACH
EXPORT int rocprofiler_attach(void)
{
    static int busy;
    if(__atomic_fetch_add(&busy, 1, __ATOMIC_SEQ_CST) != 0) printf("  sdk: attached twice at once\n");
    printf("  sdk: attach probe=%s attached=%s libraries=%s sdk=%s\n", env("ROCPROF_PROBE"), env("ROCPROFILER_REGISTER_TOOL_ATTACHED"),
           env("ROCP_TOOL_LIBRARIES"), env("ROCPROFILER_REGISTER_LIBRARY"));
    if(getenv("PROBE_RECURSE"))
    {
        int (*again)(const char*, const char*) = dlsym(RTLD_DEFAULT, "rocprofiler_register_attach");
        printf("  sdk: attach again %d\n", again(NULL, "libtool.so"));
    }
    static int failures = -1;
    if(failures < 0) failures = atoi(env("PROBE_ATTACH_FAILS"));
    __atomic_fetch_sub(&busy, 1, __ATOMIC_SEQ_CST);
    return failures-- > 0 ? 17 : 0;
}
EXPORT int rocprofiler_detach(void)
{
    printf("  sdk: detach probe=%s\n", env("ROCPROF_PROBE"));
    return atoi(env("PROBE_DETACH_FAILS"));
}
#endif

#ifdef LOAD_TOOL
EXPORT int rocprofiler_load_attachment_tool(const char* path)
{
    printf("  sdk: load_attachment_tool attached=%s libraries=%s\n", env("ROCPROFILER_REGISTER_TOOL_ATTACHED"), env("ROCP_TOOL_LIBRARIES"));
    if(load(path) != 0) return 1;
    int (*all)(void) = dlsym(RTLD_DEFAULT, "rocprofiler_register_invoke_all_registrations");
    if(!getenv("PROBE_LAZY")) printf("  sdk: all %d\n", all());
    return 0;
}
#endif

#ifdef OURS
EXPORT void midair_agent_enter(void* block) { (void)block; }
#endif
