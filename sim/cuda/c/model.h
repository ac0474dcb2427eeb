/* What the stand-in's libraries tell each other. NVIDIA's do so by a table that cuGetExportTable hands out, and so do these.
 *
 * The model: a stream is a line in time. What is queued on it has its effect at once; its begin is now or the end of what is before
 * it, and its end that plus its length. Who waits for a stream sleeps until its line ends. Times are of CLOCK_BOOTTIME, in ns.
 *
 * Variables: CUDA_MODEL_LOG (a file: what was done, a line each, written before the call returns), CUDA_MODEL_CALLS (calls
 * are in it, too), CUDA_MODEL_KERNEL_NS (length of a kernel, 5000),
 * CUDA_MODEL_LONG_KERNEL (N:NS, each Nth kernel has this length), CUPTI_MODEL (for libcupti: see cupti.h). */
#pragma once
#include "cuda.h"
#include "records.h"
#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

enum model_kind { MODEL_KERNEL, MODEL_COPY, MODEL_PEER, MODEL_SET };

/* What a device did. */
struct model_work {
    enum model_kind kind;
    uint32_t device, context, stream, correlation, graph, tid;
    uint64_t graph_node, start, end;
    bool async;
    /* A kernel. */
    const char *name;
    uint32_t grid[3], block[3], registers, static_shared, dynamic_shared, local;
    /* A copy or a fill. */
    uint64_t bytes;
    uint32_t value;
    uint8_t copy_kind, from_kind, to_kind;
    uint32_t from_device, from_context, to_device, to_context;
};

/* A thread that waited, or a stream that is told to. */
struct model_wait {
    uint32_t type, context, stream, event, correlation;
    uint64_t start, end;
};

/* Memory that came or went. */
struct model_memory {
    bool came;
    uint32_t kind, device, context, correlation;
    uint64_t at, bytes, time;
};

/* A call of the interface, from model_enter to model_exit. */
struct model_call {
    bool runtime;
    uint32_t cbid, correlation, generation, tid;
    const char *name;
    uint64_t start, end;
    int result;
};

/* What libcupti puts in while anything is enabled. */
struct model_hooks {
    uint32_t (*correlation)(void);
    void (*begins)(const struct model_call *);
    void (*call)(const struct model_call *);
    void (*work)(const struct model_work *);
    void (*wait)(const struct model_wait *);
    void (*memory)(const struct model_memory *);
};

/* What a node of a graph is. A node starts with its id. */
enum { MODEL_NODE_CREATED = 13, MODEL_NODE_CLONED = 20 };
struct model_made_node {
    const uint64_t *node, *original;
    uint32_t type; /* 0: a kernel */
};

/* A function of libcupti that is called at the start and the end of each call, whatever is enabled: its data, a domain (6 for calls), the
 * call's number, its arguments. In domain 2 it is called when a context is made (1) or destroyed (2), with what it keeps there, and in
 * domain 3 when a node of a graph is made or copied. */
typedef int (*model_callback_t)(void *data, uint32_t domain, uint32_t cbid, const void *arguments);

/* What cuGetExportTable gives for MODEL_TABLE. */
struct model_table {
    size_t size;
    /* Takes the hooks in, or out (0): then no thread is in them any more when it returns. False where others are in. */
    bool (*hook)(const struct model_hooks *);
    /* A line of the log. */
    void (*log)(const char *format, ...);
    /* How many contexts there are. */
    uint32_t (*contexts)(void);
    /* Takes the function to call, or 0. Threads may still be in the one before when it returns. */
    void (*subscribe)(model_callback_t function, void *data);
    /* Clears this where libcupti keeps it with a context; one that is being made is not seen. */
    void (*forget)(uint64_t tools);
};
#define MODEL_TABLE "midair-model-cu"

/* Between libcuda and libcudart. */
void model_enter(struct model_call *call, bool runtime, uint32_t cbid, const char *name);
int model_exit(struct model_call *call, int result);

#ifdef MODEL_DRIVER
/* Within libcuda. */
#include <pthread.h>
struct model_context {
    uint32_t id, device, streams;
    struct model_stream *first, *default_stream; /* other threads create and destroy streams: the list is read with the lock */
    struct model_context *next;
    uint64_t tools; /* libcupti's */
};
struct model_stream {
    uint32_t id;
    struct model_context *context;
    uint64_t until; /* the end of what is queued */
    struct model_graph *capture;
    bool spoilt; /* a thread waited for the context meanwhile: the capture comes to nothing */
    struct model_stream *next;
};
struct model_event {
    uint32_t id;
    uint64_t at;
};
extern pthread_mutex_t model_lock;
uint64_t model_now(void);
uint32_t model_tid(void);
const struct model_hooks *model_take_hooks(void);
void model_give_hooks(void);
uint32_t model_correlation(void);
uint32_t model_contexts(void);
void model_forget(uint64_t tools);
/* Calls libcupti's function, if there is one. */
void model_notify(uint32_t domain, uint32_t cbid, const void *arguments);
void model_first_context(void);
void model_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool model_ready(void);
CUcontext model_context(void);
/* A stream, or the current context's default one for 0; 0 without a context. */
struct model_stream *model_stream(CUstream stream);
/* Queues it; fills in where and when. */
void model_run(struct model_stream *stream, struct model_work *work, uint64_t ns);
uint64_t model_kernel_ns(void);
void model_wait_until(uint32_t type, struct model_stream *stream, uint32_t event, uint64_t until);
/* A node of a graph that is being captured; true if the stream is captured. */
bool model_captured(struct model_stream *stream, const struct model_work *work, void (*effect)(void *), const void *argument,
                    size_t bytes);

/* The functions of the interface. */
#define CALL(cbid_name)                                                                                                        \
    struct model_call call;                                                                                                    \
    model_enter(&call, false, CUPTI_DRIVER_TRACE_CBID_##cbid_name, #cbid_name)
#define DONE(result) return model_exit(&call, result)
#endif
