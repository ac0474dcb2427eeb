/* Calls exported functions with arguments of all kinds, in a state that the first word names:
 *
 *   arguments LIBRARY STATE SEED CALLS
 *
 *   before      nothing is registered            configure   inside a tool's configure function
 *   initialize  inside its initialize function   running     contexts run; five threads call
 *   finalize    inside its finalize function     after       when the library's own end is over
 *   sessions    as running, while another thread attaches the tool libtool.so beside the library and detaches it
 *   threads     five threads call; nothing is registered
 *   attached    as running, while another process attaches. Says "ready", and answers lines by themselves: "hip" calls HIP 100
 *               times, where the program was linked with it; "still" has the threads call no more; "quit" ends it
 *
 * FUNCTIONS is a table of {name, kinds of arguments, whether it gives a status} (tests/arguments.rs). Every pointer is null or
 * valid, as C asks; everything else is anything at all. Callbacks call on. A status that is none is told, and so is the function in
 * which the program ends. Says "STATE calls N statuses S" at its end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct function {
    const char *name, *kinds;
    int status;
    void *call;
};
static struct function functions[] = {FUNCTIONS};
enum { COUNT = sizeof functions / sizeof *functions, PAGE = 1 << 16, MOST = 64 };

static char state[32];
static unsigned long wanted;
static unsigned long calls, statuses, seen_statuses[MOST];
static uint64_t contexts[MOST], buffers[MOST];
static unsigned context_count, buffer_count;
static __thread uint64_t random_state;
static __thread const char *current = "nothing";
static __thread unsigned depth;
static uint64_t seed;
static int child;

static uint64_t any(void) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state;
}

static void tell(const char *what) {
    if (write(2, what, strlen(what)) < 0) _exit(9);
}

static void ends(int signal) {
    (void)signal;
    tell(state), tell(": ended in "), tell(current), tell("\n");
    _exit(signal == SIGALRM ? 8 : 7);
}

static void *page(void) {
    /* Zeros, or small numbers in each word. Never freed: it may be kept by who was given it. */
    static __thread char *pages[2];
    int small = any() % 2;
    if (!pages[small]) pages[small] = calloc(1, PAGE);
    uint64_t *words = (uint64_t *)pages[small];
    for (int i = 0; i < 64; i++) words[i] = small ? any() % 4 : 0;
    return words;
}

static uint64_t number(void) {
    static const uint64_t all[] = {0, 1, 2, 3, 4095, 4096, 65536, INT32_MAX, 0x80000000u, UINT32_MAX, INT64_MAX, UINT64_MAX, 1ull << 62};
    return any() % 3 ? all[any() % (sizeof all / sizeof *all)] : any();
}

static uint64_t id(void) {
    switch (any() % 6) {
    case 0: return 0;
    case 1: return any() % 64;
    case 2: return UINT64_MAX;
    case 3: return any();
    case 4: return context_count ? contexts[any() % context_count] : 1;
    default: return buffer_count ? buffers[any() % buffer_count] : 1;
    }
}

/* A process that must not be taken for one with a GPU's runtime. */
static uint64_t process(void) {
    const int all[] = {0, -1, INT32_MIN, INT32_MAX, 1 << 30, getpid(), child};
    return (uint64_t)(int64_t)all[any() % (sizeof all / sizeof *all)];
}

/* A runtime's tables of tables, as it hands them over: without any table, with tables that end early, and with tables without
 * functions. Nothing can be hooked in them. */
static uint32_t early[2][4] = {{2, 0}, {2, 16}}, empty[2048] = {2, sizeof empty};
static void *tables[][32] = {{0}, {0, 0, early[0], early[1]}, {0, 0, early[1], empty}, {0, 0, empty, empty}};
static void *const handed[] = {tables[0], tables[1], tables[2], tables[3]};

static void one(void);

/* A callback that is called for each of many objects does not call on each time: the calls would be without number. */
static __thread unsigned long outer, inner;

static int callback(void) {
    if (depth < 3 && inner < 2 * outer && any() % 4 == 0) inner++, one();
    return 0;
}

struct record {
    uint64_t words[8];
};

/* What a record leads to holds pointers: all of them null. */
static uint64_t nothing[PAGE / 8];

static void one(void) {
    static const char *const texts[] = {"", "x", "hip", "hsa", "SQ_WAVES", "reduce(SQ_WAVES,sum)", "%s%n\xff\n"};
    if (!random_state) random_state = seed * 2654435761u + (uintptr_t)&depth;
    static const void *const variables[] = {(void *)24, "a-b", "c"};
    struct function *function = &functions[any() % COUNT];
    if (!function->call) return;
    uint64_t words[10] = {0};
    unsigned n = 0;
    struct record record = {{0}};
    int whole = 0;
    void *last = 0;
    for (const char *kind = function->kinds; *kind; kind++) {
        void *at = any() % 4 ? page() : 0;
        switch (*kind) {
        case 'f': words[n++] = any() % 4 ? (uintptr_t)callback : 0; break;
        case 's': last = any() % 4 ? (void *)texts[any() % (sizeof texts / sizeof *texts)] : 0, words[n++] = (uintptr_t)last; break;
        case 'p': last = at, words[n++] = (uintptr_t)at; break;
        /* What counts an array or a text that is there may not go beyond it. */
        case 'c': words[n++] = !last ? number() : any() % 2; break;
        case 'E': words[n++] = any() % 8; break;
        /* An array of texts, and a struct of its size and two texts. */
        case 'h': last = any() % 4 ? (void *)texts : 0, words[n++] = (uintptr_t)last; break;
        /* A runtime's table of tables, and an array of them. */
        case 't': words[n++] = any() % 4 ? (uintptr_t)handed[any() % 4] : 0; break;
        case 'T': last = any() % 4 ? (void *)&handed[any() % 3] : 0, words[n++] = (uintptr_t)last; break;
        case 'v': words[n++] = any() % 4 ? (uintptr_t)variables : 0; break;
        case 'e': words[n++] = any() % 4 ? any() % 40 : number(); break;
        case 'i': words[n++] = number(); break;
        case 'P': words[n++] = process(); break;
        case 'x': words[n++] = id(); break;
        /* A record's header: category and kind, and what it leads to. */
        case 'r':
            words[n++] = (any() % 6) << 32 | any() % 40;
            words[n++] = any() % 4 ? (uintptr_t)nothing : 0;
            break;
        case 'R':
            whole = 1;
            for (int i = 0; i < 7; i++) record.words[i] = any() % 4 ? any() % 40 : any() % 3 << 32 | any() % 40;
            record.words[7] = any() % 4 ? (uintptr_t)nothing : 0;
            break;
        }
    }
    const char *before = current;
    current = function->name;
    outer += !depth;
    depth++;
    uint64_t result;
    if (whole)
        result = ((uint64_t(*)(struct record, uint64_t, uint64_t, uint64_t))function->call)(record, words[0], words[1], words[2]);
    else
        result = ((uint64_t(*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t))function->call)(
            words[0], words[1], words[2], words[3], words[4], words[5], words[6], words[7]);
    depth--;
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (function->status) {
        uint32_t status = (uint32_t)result;
        if (status >= STATUSES) tell(state), tell(": no status from "), tell(current), tell("\n"), _exit(6);
        if (!__atomic_exchange_n(&seen_statuses[status], 1, __ATOMIC_RELAXED)) __atomic_add_fetch(&statuses, 1, __ATOMIC_RELAXED);
    }
    current = before;
}

static int calling = 1;

static void *many(void *part) {
    random_state = 0;
    for (unsigned long i = 0; i < wanted / (uintptr_t)part && __atomic_load_n(&calling, __ATOMIC_RELAXED); i++) one();
    return 0;
}

static void *for_an_attach(void *data) {
    char line[16];
    int (*hip)(int *) = dlsym(RTLD_DEFAULT, "hipGetDeviceCount"), count;
    (void)data;
    printf("ready\n"), fflush(stdout);
    while (fgets(line, sizeof line, stdin) && *line != 'q') {
        if (*line == 's') __atomic_store_n(&calling, 0, __ATOMIC_SEQ_CST);
        for (int i = 0; hip && *line == 'h' && i < 100; i++) hip(&count);
        printf("%s", line), fflush(stdout);
    }
    __atomic_store_n(&calling, 0, __ATOMIC_SEQ_CST);
    return 0;
}

static int is(const char *name) { return !strcmp(state, name); }

static void *function(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (!strcmp(functions[i].name, name)) return functions[i].call;
    return 0;
}

static int initialize(void (*finalize)(void *), void *data) {
    (void)finalize, (void)data;
    int (*context)(uint64_t *) = function("rocprofiler_create_context");
    int (*buffer)(uint64_t, uint64_t, uint64_t, int, void *, void *, uint64_t *) = function("rocprofiler_create_buffer");
    int (*start)(uint64_t) = function("rocprofiler_start_context");
    for (int i = 0; i < 4; i++) {
        if (context(&contexts[context_count])) tell("no context\n"), _exit(5);
        context_count++;
        if (!buffer(contexts[i], 4096, 2048, 1 + i % 2, callback, 0, &buffers[buffer_count])) buffer_count++;
    }
    if (is("initialize")) many((void *)1);
    if (is("running") || is("sessions") || is("attached")) start(contexts[0]);
    return 0;
}

static void finalized(void *data) {
    (void)data;
    if (is("finalize")) many((void *)1);
}

static void *configure(uint32_t version, const char *text, uint32_t priority, void *client) {
    static struct {
        uint64_t size;
        void *initialize, *finalize, *data;
    } tool = {sizeof tool, initialize, finalized, 0};
    (void)version, (void)text, (void)priority, (void)client;
    if (is("configure")) many((void *)1);
    return &tool;
}

/* Attaches and detaches while threads call. One attach succeeds at least, unless the tool refuses: the others may have
 * destroyed its buffer before its first one. */
static void *sessions(void *library) {
    static char tool[4096];
    int (*load)(const char *) = dlsym(library, "rocprofiler_load_attachment_tool");
    int (*attach)(void) = dlsym(library, "rocprofiler_attach"), (*detach)(void) = dlsym(library, "rocprofiler_detach");
    Dl_info here;
    if (!load || !attach || !detach || !dladdr((void *)load, &here)) tell("no attach\n"), _exit(5);
    snprintf(tool, sizeof tool, "%.*slibtool.so", (int)(strrchr(here.dli_fname, '/') + 1 - here.dli_fname), here.dli_fname);
    unsigned made = 0, more = 100;
    while (__atomic_load_n(&calling, __ATOMIC_SEQ_CST) || (!made && more--)) {
        int status = load(tool);
        if (status) printf("load %d\n", status);
        status = attach();
        if (status) printf("attach %d\n", status);
        else status = detach(), made++;
        if (status) printf("detach %d\n", status);
    }
    void *loaded = dlopen(tool, RTLD_NOW | RTLD_NOLOAD);
    int *refused = loaded ? dlsym(loaded, "refused") : 0;
    if (!made && !(refused && *refused)) tell("no session\n"), _exit(5);
    return (void *)(uintptr_t)made;
}

static void over(void) {
    if (is("after")) many((void *)1);
    printf("%s calls %lu statuses %lu\n", state, calls, statuses);
    fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    snprintf(state, sizeof state, "%s", argv[2]);
    seed = strtoull(argv[3], 0, 10) + 1;
    wanted = strtoul(argv[4], 0, 10);
    for (const int *signal = (const int[]){SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM, 0}; *signal; signal++) {
        struct sigaction action = {.sa_handler = ends};
        sigaction(*signal, &action, 0);
    }
    alarm(100);
    atexit(over);
    for (int i = 0; i < COUNT; i++)
        if (strchr(functions[i].kinds, 'P') && !child && !(child = fork())) prctl(PR_SET_PDEATHSIG, SIGKILL), pause(), _exit(0);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!library) return puts(dlerror()), 3;
    for (int i = 0; i < COUNT; i++) functions[i].call = dlsym(library, functions[i].name);
    int (*force)(void *) = function("rocprofiler_force_configure");
    if (is("before")) many((void *)1);
    if (force && !is("before")) {
        int status = force(configure);
        if (status) return printf("configured with %d\n", status), 4;
    }
    pthread_t attacher;
    if (is("sessions")) pthread_create(&attacher, 0, sessions, library);
    if (is("attached")) pthread_create(&attacher, 0, for_an_attach, 0);
    if (is("running") || is("sessions") || is("threads") || is("attached")) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, many, (void *)5);
        many((void *)5);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    }
    if (is("attached")) pthread_join(attacher, 0);
    if (is("sessions")) {
        void *made = 0;
        __atomic_store_n(&calling, 0, __ATOMIC_SEQ_CST);
        pthread_join(attacher, &made);
        printf("sessions %lu\n", (unsigned long)made);
    }
    if (child) kill(child, SIGKILL);
    return 0;
}
