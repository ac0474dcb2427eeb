/* The part of CUPTI's interface that the stand-in has; types as NVIDIA's headers have them.
 *
 * CUPTI_MODEL in the environment of the process makes it misbehave, words with a comma between them:
 *   version=N     what cuptiGetVersion says, and which records are written (default: by SONAME, 28 or 130001)
 *   enable=S      cuptiActivityEnable of kernels fails with status S
 *   enable_ms=N   each cuptiActivityEnable takes N ms; finalize_ms=N, flush_ms=N likewise
 *   start_ms=N    at its first use the driver calls its callback N ms before what that reads is there
 *   list_us=N     a kind that is enabled for the first time leaves the callback's list half made for N us; a thread that reads it aborts
 *   callback_ms=N each thread's every fourth call of CUDA stays in a callback of libcupti for N ms
 *   teardown_ms=N cuptiFinalize takes N ms after it has freed what its threads share
 *   subscribed    another tool is subscribed already
 *   next=S        after three records of a buffer cuptiActivityGetNextRecord says S
 *   odd           records between the others that make no sense: unknown kinds, no name, an end before the begin
 *   small         asks for a buffer once and never again
 *   hw_trace      the GPUs time kernels by hardware of their own, which can be switched on
 *   launches      a thread launches a kernel at the moment when kernels are enabled one by one, and all threads share its buffer
 * Compiled with -DMODEL_WITHOUT_FINALIZE or -DMODEL_WITHOUT_HW_TRACE that function is not there. */
#pragma once
#include "model.h"
#include <stdatomic.h>

typedef int CUptiResult;
typedef uint32_t CUpti_CallbackId;
typedef struct model_subscriber *CUpti_SubscriberHandle;
typedef const uint64_t *CUgraphNode;
typedef void (*CUpti_CallbackFunc)(void *user, int domain, CUpti_CallbackId id, const void *data);
typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size, size_t *max_records);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef uint64_t (*CUpti_TimestampCallbackFunc)(void);
typedef struct {
    uint32_t kind;
} CUpti_Activity;

CUptiResult cuptiGetVersion(uint32_t *version);
CUptiResult cuptiGetResultString(CUptiResult result, const char **text);
CUptiResult cuptiGetErrorMessage(CUptiResult result, const char **text);
CUptiResult cuptiSupportedDomains(size_t *count, const int **domains);
CUptiResult cuptiGetTimestamp(uint64_t *time);
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user);
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user, void *params);
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, int domain, CUpti_CallbackId id);
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback);
CUptiResult cuptiActivityEnable(uint32_t kind);
CUptiResult cuptiActivityDisable(uint32_t kind);
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable);
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable);
CUptiResult cuptiActivityEnableHWTrace(uint8_t enable);
CUptiResult cuptiActivityConfigureUnifiedMemoryCounter(void *config, uint32_t count);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityFlushPeriod(uint32_t ms);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped);
CUptiResult cuptiActivityGetAttribute(uint32_t attribute, size_t *size, void *value);
CUptiResult cuptiActivitySetAttribute(uint32_t attribute, size_t *size, void *value);
CUptiResult cuptiSetThreadIdType(uint32_t type);
CUptiResult cuptiGetThreadIdType(uint32_t *type);
CUptiResult cuptiFinalize(void);

#ifdef MODEL_CUPTI
/* Within libcupti. */
uint32_t model_version(void);
/* A number of CUPTI_MODEL, or `otherwise`; a word without a number is 1. */
uint64_t model_fault(const char *word, uint64_t otherwise);
/* Bytes of a record of this kind, 0 for none that is written. */
size_t model_record_size(uint32_t kind);
/* Space for a record, or 0, in which case it is counted as dropped; `ready`: when it is complete. Call with the lock held. */
void *model_slot(size_t size, uint64_t ready);
/* A kernel that belongs to no client, untimed or name. With the lock. */
void model_kernel_meanwhile(void);
/* A call begins or ends: the subscriber is called if it has chosen that call. */
void model_callback(const struct model_call *call, bool ends);
/* A thread is in a call while CUPTI is in use, whatever is recorded. */
void model_thread_calls(void);
bool model_on(uint32_t kind);
bool model_call_on(bool runtime, uint32_t cbid);
bool model_system_threads(void);
/* A time in CUPTI's own clock. */
uint64_t model_to_cupti(uint64_t time);
/* A length of time in that clock's units. */
uint64_t model_length(uint64_t ns);
/* The beginning or the end of a range of the program's, or a point in time; flags as in CUPTI's records. */
enum { MODEL_MOMENT = 1, MODEL_BEGIN = 2, MODEL_END = 4 };
struct model_range {
    uint32_t flags, id, tid;
    const char *name, *domain;
    uint64_t time;
};
void model_range(const struct model_range *range);
/* A name that stays until cuptiFinalize. */
const char *model_name(const char *name);
void model_forget_names(void);
void model_lock_records(void);
void model_unlock_records(void);
extern const struct model_hooks model_hooks;
/* Whether each call gets the correlation id of the last one. */
extern atomic_bool model_ids_stand_still;
#endif
