/* A program that links the register library, executes its arguments one after the other, and prints each result. */
#define _GNU_SOURCE
#include <rocprofiler-register/rocprofiler-register.h>

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

ROCPROFILER_REGISTER_DEFINE_IMPORT(host, ROCPROFILER_REGISTER_COMPUTE_VERSION_3(7, 2, 4))

rocprofiler_register_error_code_t rocprofiler_register_attach(const char*, const char*);
rocprofiler_register_error_code_t rocprofiler_register_detach(void);
rocprofiler_register_error_code_t rocprofiler_register_invoke_reattach(void);
rocprofiler_register_error_code_t rocprofiler_register_invoke_all_registrations(void);
rocprofiler_register_error_code_t rocprofiler_register_invoke_nonpropagated_registrations(void);

#define CODE(call) ((int)(call))

static uint64_t table[4] = {32, 0x1111, 0x2222, 0x3333}; /* its own size first */

static int add(const char* name, uint64_t tables, uint64_t* handle)
{
    void*                                      array[3] = {table, table, table};
    rocprofiler_register_library_indentifier_t id       = {~0ull};
    int code = CODE(rocprofiler_register_library_api_table(name, &rocprofiler_register_import_host, 70204, array, tables, &id));
    memset(array, 0xee, sizeof array); /* the library must have copied it */
    *handle = id.handle;
    return code;
}

static int told(rocprofiler_register_registration_info_t* info, void* data)
{
    const uint64_t* more = (const uint64_t*)(const void*)info;
    int             wide = info->size >= 64 && memcmp(&more[4], "midair\0R", 8) == 0;
    void**          list = wide ? (void**)(uintptr_t)more[5] : NULL;
    printf("  info %s %u %lu\n", info->common_name, info->lib_version, (unsigned long)info->api_table_length);
    if(getenv("HOST_SHOWS_TABLES")) printf("  %s\n", list && list[0] == (void*)table ? "table" : "no table");
    return *(int*)data;
}

/* How many threads of this process have this name. A new thread sets its own name, so the expected count is waited for. */
static int threads(const char* name, int wanted)
{
    int count = -1;
    for(int tries = 0; tries < 2000 && count != wanted; ++tries)
    {
        DIR* folder = opendir("/proc/self/task");
        count       = 0;
        for(struct dirent* entry; (entry = readdir(folder)) != NULL;)
        {
            char path[300], text[32] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
            FILE* file = fopen(path, "r");
            if(file && fgets(text, sizeof text, file)) count += strncmp(text, name, strlen(name)) == 0 && text[strlen(name)] == '\n';
            if(file) fclose(file);
        }
        closedir(folder);
        if(count != wanted) usleep(1000);
    }
    return count;
}

/* How many threads this process has. */
static int tasks(void)
{
    DIR* folder = opendir("/proc/self/task");
    int  count  = 0;
    for(struct dirent* entry; (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Registers from a thread that has a policy and a processor of its own. */
static void* add_apart(void* name)
{
    struct sched_param plain = {0};
    cpu_set_t          all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for(int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
        if(CPU_ISSET(i, &all)) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setscheduler(0, SCHED_BATCH, &plain);
    uint64_t handle;
    printf("add %s %d\n", (const char*)name, add(name, 1, &handle));
    return NULL;
}

/* Whether the listener's socket accepts connections now. */
static int listens(void)
{
    char  line[512], name[64];
    int   found = 0;
    FILE* file  = fopen("/proc/self/net/unix", "r");
    snprintf(name, sizeof name, "@midair-attach/%d/", getpid());
    while(file && fgets(line, sizeof line, file))
    {
        unsigned long flags = 0; /* the fourth field; __SO_ACCEPTCON */
        found |= strstr(line, name) && sscanf(line, "%*s %*s %*s %lx", &flags) == 1 && (flags & 0x10000);
    }
    if(file) fclose(file);
    return found;
}

/* Settings that every register library understands in the same way. */
static const char plain[] = "\1\0\0\0ROCPROF_PROBE\0one two";

/* Settings with two variables, in the layout of an attacher. */
static const char settings[] = "\2\0\0\0ROCPROF_PROBE\0one two\0ROCPROFILER_REGISTER_LIBRARY\0/elsewhere.so";

static void* register_some(void* bad)
{
    static const char* names[] = {"hsa", "hip", "hip_compiler", "rccl", "rocdecode", "rocjpeg"};
    for(int i = 0; i < 6; ++i)
    {
        uint64_t handle;
        int      code = add(names[i], 1, &handle);
        if(code != 0 && code != 1) __atomic_fetch_add((int*)bad, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void* attach_once(void* bad)
{
    if(CODE(rocprofiler_register_attach(settings, "libtool.so")) != 0) __atomic_fetch_add((int*)bad, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int in_threads(void* (*body)(void*), int count)
{
    pthread_t list[16];
    int       bad = 0;
    for(int i = 0; i < count; ++i) pthread_create(&list[i], NULL, body, &bad);
    for(int i = 0; i < count; ++i) pthread_join(list[i], NULL);
    return bad;
}

static void obey(char** word)
{
    for(; *word; ++word)
    {
        uint64_t handle = 0;
        if(!strncmp(*word, "add:", 4))
        {
            char* more = strchr(*word + 4, '*');
            long  n    = more ? strtol(more + 1, NULL, 10) : 1;
            if(more) *more = 0;
            int code = add(*word + 4, (uint64_t)n, &handle);
            printf("add %s %d %ld\n", *word + 4, code, (long)handle);
        }
        else if(!strncmp(*word, "attach:", 7)) printf("attach %d\n", CODE(rocprofiler_register_attach(settings, *word + 7)));
        else if(!strncmp(*word, "attach-plain:", 13)) printf("attach %d\n", CODE(rocprofiler_register_attach(plain, *word + 13)));
        else if(!strcmp(*word, "attach-null")) printf("attach %d\n", CODE(rocprofiler_register_attach(NULL, NULL)));
        else if(!strcmp(*word, "attach-garbage")) printf("attach %d\n", CODE(rocprofiler_register_attach("\377\377\377\377", "libtool.so")));
        else if(!strcmp(*word, "attach-nowhere")) printf("attach %d\n", CODE(rocprofiler_register_attach((const char*)64, "libtool.so")));
        else if(!strcmp(*word, "attach-endless"))
        {
            /* A count larger than the number of variables: unmapped memory follows. */
            char* page = (char*)mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            munmap(page + 4096, 4096);
            memset(page, 'x', 4096);
            memcpy(page + 4096 - sizeof plain, plain, sizeof plain);
            page[4096 - sizeof plain] = 2;
            printf("attach %d\n", CODE(rocprofiler_register_attach(page + 4096 - sizeof plain, "libtool.so")));
            memset(page, 'x', 4096);
            printf("attach %d\n", CODE(rocprofiler_register_attach(plain, page + 4000)));
        }
        else if(!strcmp(*word, "detach")) printf("detach %d\n", CODE(rocprofiler_register_detach()));
        else if(!strcmp(*word, "reattach")) printf("reattach %d\n", CODE(rocprofiler_register_invoke_reattach()));
        else if(!strcmp(*word, "all")) printf("all %d\n", CODE(rocprofiler_register_invoke_all_registrations()));
        else if(!strcmp(*word, "rest")) printf("rest %d\n", CODE(rocprofiler_register_invoke_nonpropagated_registrations()));
        else if(!strncmp(*word, "list:", 5))
        {
            int stop = (*word)[5] == '1';
            printf("list %d\n", CODE(rocprofiler_register_iterate_registration_info(told, &stop)));
        }
        else if(!strncmp(*word, "listeners:", 10)) printf("listeners %d\n", threads("rocp-bg-attach", atoi(*word + 10)));
        else if(!strcmp(*word, "tasks")) printf("tasks %d\n", tasks());
        else if(!strncmp(*word, "symbol:", 7)) printf("symbol %d\n", dlsym(RTLD_DEFAULT, *word + 7) != NULL);
        else if(!strncmp(*word, "apart:", 6))
        {
            pthread_t thread;
            pthread_create(&thread, NULL, add_apart, *word + 6);
            pthread_join(thread, NULL);
        }
        else if(!strcmp(*word, "pause"))
        {
            /* Another process looks at this one, and then sends a line. */
            printf("pause\n");
            fflush(stdout);
            for(int c = 0; c != '\n' && c != EOF;) c = getchar();
        }
        else if(!strcmp(*word, "listens")) printf("listens %d\n", listens());
        else if(!strncmp(*word, "env:", 4)) printf("env %s\n", getenv(*word + 4) ? getenv(*word + 4) : "-");
        else if(!strncmp(*word, "load:", 5)) printf("load %s\n", dlopen(*word + 5, RTLD_NOW | RTLD_GLOBAL) ? "ok" : dlerror());
        else if(!strncmp(*word, "many:", 5)) printf("many %d\n", in_threads(register_some, atoi(*word + 5)));
        else if(!strncmp(*word, "attach-many:", 12)) printf("attach-many %d\n", in_threads(attach_once, atoi(*word + 12)));
        else if(!strncmp(*word, "word:", 5)) printf("word %s\n", rocprofiler_register_error_string((rocprofiler_register_error_code_t)atoi(*word + 5)));
        else if(!strcmp(*word, "where"))
        {
            /* Prints what an injector needs, and waits for it. */
            static const char tool[] = "libtool.so";
            printf("where %d %lx %lx %lx %lx\n", getpid(), (unsigned long)&rocprofiler_register_attach,
                   (unsigned long)&rocprofiler_register_detach, (unsigned long)plain, (unsigned long)tool);
            fflush(stdout);
            while(getchar() != EOF) {}
        }
        else if(!strcmp(*word, "fork"))
        {
            fflush(stdout);
            pid_t child = fork();
            if(child == 0)
            {
                obey(word + 1);
                fflush(stdout);
                _exit(0);
            }
            int status = -1;
            waitpid(child, &status, 0);
            printf("child %d\n", status);
            return;
        }
        else printf("what is %s\n", *word);
        fflush(stdout);
    }
}

int main(int argc, char** argv)
{
    (void)argc;
    obey(argv + 1);
    return 0;
}
