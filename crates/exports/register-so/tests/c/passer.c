/* Links the register library first, as every program that uses a GPU does, and lets others call functions of their own names.
 * Words: plug:FILE (loads it and lets it run), pointer:FILE (calls its function by the address that it gives), attach:N, detach. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef double attach_t(long, long, long, long, long, long, double, double, double, double, double, double, double, double, long, double);
typedef void   old_attach_t(unsigned);
typedef void   old_detach_t(void);

int rocprofiler_register_detach(void);

static void* load(const char* file)
{
    void* plug = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if(!plug) printf("%s\n", dlerror());
    return plug;
}

int main(int argc, char** argv)
{
    /* The library is there: nothing is attached. */
    printf("linked %d\n", rocprofiler_register_detach());
    for(int i = 1; i < argc; ++i)
    {
        if(!strncmp(argv[i], "plug:", 5)) ((void (*)(void))dlsym(load(argv[i] + 5), "plugin_run"))();
        else if(!strncmp(argv[i], "pointer:", 8))
        {
            attach_t* given = ((attach_t * (*)(void)) dlsym(load(argv[i] + 8), "plugin_function"))();
            printf("pointer %g\n", given(1, 2, 3, 4, 5, 6, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 7, 8.5));
        }
        else
        {
            /* As the first generation does it: by name, from the library itself. */
            void* library = dlopen("librocprofiler-register.so.0", RTLD_NOW);
            if(!strncmp(argv[i], "attach:", 7)) ((old_attach_t*)dlsym(library, "attach"))((unsigned)atoi(argv[i] + 7));
            else ((old_detach_t*)dlsym(library, "detach"))();
        }
        fflush(stdout);
    }
    return 0;
}
