/* libcupti.so: PM sampling of a device, and the host interface to metrics (source: CUPTI's headers of 13.0). See pm.h.
 *
 * CUPTI_MODEL, besides the words in cupti.h:
 *   pm_initialize=S, pm_availability=S, pm_host=S, pm_enable=S, pm_decode=S   that function says S
 *   pm_crash, pm_hang    the first decoding ends the process, or does not return
 *   pm_overflow          the hardware's buffer is full once, and what it holds is decoded
 *   pm_gap=N             N samples are missing after the tenth
 *   pm_beside            no values until samples are decoded once more: an error where that does not come
 *   pm_passes            some metrics do not fit together, see pm.h */
#define _GNU_SOURCE
#define MODEL_CUPTI
#include "cupti.h"
#include "pm.h"
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define HEAD                                                                                                                               \
    size_t size;                                                                                                                           \
    void *priv

struct host {
    size_t count;
    char names[64][PM_NAME];
};
struct config {
    uint64_t magic, passes, count;
};
struct object {
    uint64_t interval, next, taken;
    bool on, first, configured, overflowed;
};

#ifndef MODEL_WITHOUT_PM
static atomic_uint decodings;

static uint64_t wall(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static CUptiResult fault(const char *word) { return (CUptiResult)model_fault(word, 0); }

EXPORT CUptiResult cuptiProfilerInitialize(void *params) {
    (void)params;
    return fault("pm_initialize");
}

struct chip {
    HEAD;
    size_t device;
    const char *name;
};
EXPORT CUptiResult cuptiDeviceGetChipName(struct chip *params) {
    if (params->size != 32) return CUPTI_ERROR_INVALID_PARAMETER;
    params->name = "GH100";
    return CUPTI_SUCCESS;
}

struct availability {
    HEAD;
    size_t device, bytes;
    uint8_t *image;
};
EXPORT CUptiResult cuptiPmSamplingGetCounterAvailability(struct availability *params) {
    if (params->size != 40) return CUPTI_ERROR_INVALID_PARAMETER;
    if (fault("pm_availability")) return fault("pm_availability");
    if (params->image) memset(params->image, 1, params->bytes);
    else params->bytes = 100;
    return CUPTI_SUCCESS;
}

struct initialize {
    HEAD;
    int type;
    const char *chip;
    const uint8_t *availability;
    struct host *host;
};
EXPORT CUptiResult cuptiProfilerHostInitialize(struct initialize *params) {
    if (params->size != 48 || params->type != 1 || strcmp(params->chip, "GH100")) return CUPTI_ERROR_INVALID_PARAMETER;
    if (fault("pm_host")) return fault("pm_host");
    params->host = calloc(1, sizeof *params->host);
    return params->host ? CUPTI_SUCCESS : CUPTI_ERROR_OUT_OF_MEMORY;
}

struct deinitialize {
    HEAD;
    struct host *host;
};
EXPORT CUptiResult cuptiProfilerHostDeinitialize(struct deinitialize *params) {
    free(params->host);
    return CUPTI_SUCCESS;
}

struct base {
    HEAD;
    struct host *host;
    int type;
    const char **names;
    size_t count;
};
EXPORT CUptiResult cuptiProfilerHostGetBaseMetrics(struct base *params) {
    static const char *names[3][2] = {{"sm__cycles_active", "dram__bytes_read"}, {"l1tex__t_sector_hit_rate", 0}, {"dram__throughput", 0}};
    if (params->size != 48 || params->type < 0 || params->type > 2) return CUPTI_ERROR_INVALID_PARAMETER;
    params->names = names[params->type];
    params->count = params->type ? 1 : 2;
    return CUPTI_SUCCESS;
}

struct properties {
    HEAD;
    struct host *host;
    const char *name, *description, *hardware, *dimension;
    int type;
};
EXPORT CUptiResult cuptiProfilerHostGetMetricProperties(struct properties *params) {
    if (params->size != 60) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!pm_known(params->name)) return CUPTI_ERROR_INVALID_METRIC_NAME;
    params->dimension = strstr(params->name, "bytes") ? "byte" : "gpc_cycle";
    return CUPTI_SUCCESS;
}

struct add {
    HEAD;
    struct host *host;
    const char **names;
    size_t count;
};
EXPORT CUptiResult cuptiProfilerHostConfigAddMetrics(struct add *params) {
    if (params->size != 40) return CUPTI_ERROR_INVALID_PARAMETER;
    for (size_t i = 0; i < params->count; i++) {
        if (!pm_known(params->names[i]) || params->host->count == 64) return CUPTI_ERROR_INVALID_METRIC_NAME;
        strcpy(params->host->names[params->host->count++], params->names[i]);
    }
    return CUPTI_SUCCESS;
}

struct config_image {
    HEAD;
    struct host *host;
    size_t bytes;
    struct config *image;
};
EXPORT CUptiResult cuptiProfilerHostGetConfigImageSize(struct config_image *params) {
    if (params->size != 32) return CUPTI_ERROR_INVALID_PARAMETER;
    params->bytes = sizeof(struct config);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiProfilerHostGetConfigImage(struct config_image *params) {
    if (params->size != 40 || params->bytes < sizeof(struct config)) return CUPTI_ERROR_INVALID_PARAMETER;
    static const char *apart[] = {"l1tex", "SM_B", "lts", "LTS"};
    uint64_t lonely = 0;
    for (size_t i = 0; i < params->host->count; i++)
        for (size_t j = 0; j < 4; j++) lonely += !strncmp(params->host->names[i], apart[j], strlen(apart[j]));
    uint64_t passes = 1;
    if (model_fault("pm_passes", 0)) passes = lonely + (lonely < params->host->count);
    *params->image = (struct config){PM_MAGIC, passes, params->host->count};
    return CUPTI_SUCCESS;
}

struct passes {
    HEAD;
    size_t bytes;
    struct config *image;
    size_t passes;
};
EXPORT CUptiResult cuptiProfilerHostGetNumOfPasses(struct passes *params) {
    if (params->size != 40 || params->image->magic != PM_MAGIC) return CUPTI_ERROR_INVALID_PARAMETER;
    params->passes = params->image->passes;
    return CUPTI_SUCCESS;
}

struct evaluate {
    HEAD;
    struct host *host;
    const struct pm_image *image;
    size_t bytes, index;
    const char **names;
    size_t count;
    double *values;
};
EXPORT CUptiResult cuptiProfilerHostEvaluateToGpuValues(struct evaluate *params) {
    if (params->size != 72 || params->image->magic != PM_MAGIC || params->index >= params->image->count) return CUPTI_ERROR_INVALID_PARAMETER;
    if (model_fault("pm_beside", 0)) {
        for (int i = 0; i < 10000 && atomic_load(&decodings) < 2; i++) usleep(1000);
        if (atomic_load(&decodings) < 2) return (CUptiResult)999;
    }
    for (size_t i = 0; i < params->count; i++) params->values[i] = pm_value(params->names[i], &params->image->samples[params->index]);
    return CUPTI_SUCCESS;
}

struct enable {
    HEAD;
    size_t device;
    struct object *object;
};
EXPORT CUptiResult cuptiPmSamplingEnable(struct enable *params) {
    if (params->size != 32) return CUPTI_ERROR_INVALID_PARAMETER;
    if (fault("pm_enable")) return fault("pm_enable");
    params->object = calloc(1, sizeof *params->object);
    return params->object ? CUPTI_SUCCESS : CUPTI_ERROR_OUT_OF_MEMORY;
}

struct only_object {
    HEAD;
    struct object *object;
};
EXPORT CUptiResult cuptiPmSamplingDisable(struct only_object *params) {
    free(params->object);
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiPmSamplingStart(struct only_object *params) {
    struct object *object = params->object;
    if (object->on || !object->configured) return CUPTI_ERROR_INVALID_OPERATION;
    object->on = object->first = true;
    object->next = wall() / object->interval * object->interval;
    return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiPmSamplingStop(struct only_object *params) {
    if (!params->object->on) return CUPTI_ERROR_INVALID_OPERATION;
    params->object->on = false;
    return CUPTI_SUCCESS;
}

struct set_config {
    HEAD;
    struct object *object;
    size_t bytes;
    const struct config *config;
    size_t buffer;
    uint64_t interval;
    int trigger, append;
};
EXPORT CUptiResult cuptiPmSamplingSetConfig(struct set_config *params) {
    if (params->size != 64 || params->config->magic != PM_MAGIC || params->object->on || !params->interval) return CUPTI_ERROR_INVALID_PARAMETER;
    if (params->config->passes != 1) return CUPTI_ERROR_NOT_SUPPORTED;
    params->object->interval = params->interval;
    params->object->configured = true;
    return CUPTI_SUCCESS;
}

struct data_size {
    HEAD;
    struct object *object;
    const char **names;
    size_t count;
    uint32_t samples;
    size_t bytes;
};
EXPORT CUptiResult cuptiPmSamplingGetCounterDataSize(struct data_size *params) {
    if (params->size != 56) return CUPTI_ERROR_INVALID_PARAMETER;
    params->bytes = sizeof(struct pm_image) + params->samples * sizeof(struct pm_sample);
    return CUPTI_SUCCESS;
}

struct image {
    HEAD;
    struct object *object;
    size_t bytes;
    struct pm_image *image;
};
EXPORT CUptiResult cuptiPmSamplingCounterDataImageInitialize(struct image *params) {
    if (params->size != 40) return CUPTI_ERROR_INVALID_PARAMETER;
    *params->image = (struct pm_image){PM_MAGIC, (params->bytes - sizeof *params->image) / sizeof(struct pm_sample), 0};
    return CUPTI_SUCCESS;
}

struct decode {
    HEAD;
    struct object *object;
    struct pm_image *image;
    size_t bytes;
    int reason;
    uint8_t overflow;
};
EXPORT CUptiResult cuptiPmSamplingDecodeData(struct decode *params) {
    struct object *object = params->object;
    if (params->size != 45 || params->image->magic != PM_MAGIC) return CUPTI_ERROR_INVALID_PARAMETER;
    atomic_fetch_add(&decodings, 1);
    if (model_fault("pm_crash", 0)) abort();
    while (model_fault("pm_hang", 0)) sleep(1);
    if (fault("pm_decode")) return fault("pm_decode");
    params->overflow = model_fault("pm_overflow", 0) && object->taken > 20 && !object->overflowed;
    object->overflowed |= params->overflow;
    params->reason = 2;
    uint64_t until = wall(), gap = model_fault("pm_gap", 0);
    while (object->next + object->interval <= until) {
        if (params->image->count == params->image->capacity) {
            /* The sample that was being decoded is lost. */
            params->reason = 1;
            object->next += object->interval;
            break;
        }
        struct pm_sample sample = {object->next, object->next + object->interval};
        /* The first reaches back to when the device was configured. */
        if (object->first) sample.start -= 5 * object->interval;
        object->first = false;
        params->image->samples[params->image->count++] = sample;
        object->next += object->interval;
        if (++object->taken == 10) object->next += gap * object->interval;
    }
    return CUPTI_SUCCESS;
}

struct info {
    HEAD;
    const struct pm_image *image;
    size_t bytes, total, populated, completed;
};
EXPORT CUptiResult cuptiPmSamplingGetCounterDataInfo(struct info *params) {
    if (params->size != 56) return CUPTI_ERROR_INVALID_PARAMETER;
    params->total = params->image->capacity;
    params->populated = params->completed = params->image->count;
    return CUPTI_SUCCESS;
}

struct sample_info {
    HEAD;
    struct object *object;
    const struct pm_image *image;
    size_t bytes, index;
    uint64_t start, end;
};
EXPORT CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(struct sample_info *params) {
    if (params->size != 64 || params->index >= params->image->count) return CUPTI_ERROR_INVALID_PARAMETER;
    params->start = params->image->samples[params->index].start;
    params->end = params->image->samples[params->index].end;
    return CUPTI_SUCCESS;
}
#endif
