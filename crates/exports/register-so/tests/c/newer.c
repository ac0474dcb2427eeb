/* A stand-in for a newer runtime: linked against the per-thread variables and the callback that such runtimes use. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

extern __thread uint64_t rocp_reg_active_corr_id;
extern __thread uint64_t rocp_reg_auto_stack_[32];
extern __thread int      rocp_reg_auto_depth_;
int rocprofiler_register_runtime_tool_activation_callback(const char*, void (*)(int, void*), void*);

static void active(int mode, void* data)
{
    printf("  newer: %s active %d\n", (const char*)data, mode);
}

static void use(uint64_t id)
{
    int is_fresh = rocp_reg_active_corr_id == 0 && rocp_reg_auto_depth_ == 0;
    for(int at = 0; at < 32; at++)
    {
        is_fresh &= rocp_reg_auto_stack_[at] == 0;
        rocp_reg_auto_stack_[at] = id + at;
    }
    rocp_reg_active_corr_id = id;
    rocp_reg_auto_depth_    = 32;
    int is_kept = rocp_reg_active_corr_id == id && rocp_reg_auto_stack_[0] == id && rocp_reg_auto_stack_[31] == id + 31;
    printf("  newer: fresh %d kept %d\n", is_fresh, is_kept);
}

static void* other(void* id)
{
    use((uintptr_t)id);
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    static char one[] = "one", two[] = "two";
    int         codes[4];
    codes[0] = rocprofiler_register_runtime_tool_activation_callback("hip", active, one);
    codes[1] = rocprofiler_register_runtime_tool_activation_callback("hip", active, one);
    codes[2] = rocprofiler_register_runtime_tool_activation_callback("hsa", active, two);
    codes[3] = rocprofiler_register_runtime_tool_activation_callback("hsa", NULL, two);
    printf("  newer: %d %d %d %d\n", codes[0], codes[1], codes[2], codes[3]);
    pthread_t thread;
    use(7);
    pthread_create(&thread, NULL, other, (void*)9);
    pthread_join(thread, NULL);
}
