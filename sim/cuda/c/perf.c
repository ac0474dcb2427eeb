/* libnvperf_host.so: the evaluator behind CUPTI's host interface (source: nvperf_host.h of 13.0; what makes one for a device is in no
 * header, see docs/sources.md#pmsampling). With -DMODEL_WRONG its values are too large by one. */
#include "pm.h"

#define EXPORT __attribute__((visibility("default")))
#define HEAD                                                                                                                               \
    size_t size;                                                                                                                           \
    void *priv

struct evaluator {
    bool attributes;
    size_t count;
    char names[64][PM_NAME];
};
struct request {
    size_t metric;
    uint8_t type, rollup;
    uint16_t submetric;
};

EXPORT int NVPW_InitializeHost(void *params) {
    (void)params;
    return 0;
}

struct scratch {
    HEAD;
    const char *chip;
    size_t bytes;
};
EXPORT int NVPW_Device_MetricsEvaluator_CalculateScratchBufferSize(struct scratch *params) {
    if (params->size != 32 || strcmp(params->chip, "GH100")) return 8;
    params->bytes = sizeof(struct evaluator);
    return 0;
}

struct initialize {
    HEAD;
    struct evaluator *scratch;
    size_t bytes;
    const char *chip;
    const void *image;
    size_t image_bytes;
    struct evaluator *evaluator;
};
EXPORT int NVPW_Device_MetricsEvaluator_Initialize(struct initialize *params) {
    if (params->size != 64 || params->bytes < sizeof(struct evaluator)) return 8;
    memset(params->scratch, 0, sizeof *params->scratch);
    params->evaluator = params->scratch;
    return 0;
}

struct only {
    HEAD;
    struct evaluator *evaluator;
};
EXPORT int NVPW_MetricsEvaluator_Destroy(struct only *params) {
    (void)params;
    return 0;
}

struct convert {
    HEAD;
    struct evaluator *evaluator;
    const char *name;
    struct request *request;
    size_t bytes;
};
EXPORT int NVPW_MetricsEvaluator_ConvertMetricNameToMetricEvalRequest(struct convert *params) {
    struct evaluator *it = params->evaluator;
    if (params->size != 48 || params->bytes != 12 || !pm_known(params->name) || it->count == 64) return 8;
    strcpy(it->names[it->count], params->name);
    *params->request = (struct request){it->count++, 0, 0, 0};
    return 0;
}

struct attributes {
    HEAD;
    struct evaluator *evaluator;
    const struct pm_image *image;
    size_t bytes;
};
EXPORT int NVPW_MetricsEvaluator_SetDeviceAttributes(struct attributes *params) {
    if (params->size != 40 || params->image->magic != PM_MAGIC) return 8;
    params->evaluator->attributes = true;
    return 0;
}

struct evaluate {
    HEAD;
    struct evaluator *evaluator;
    const struct request *requests;
    size_t count, request_bytes, stride;
    const struct pm_image *image;
    size_t image_bytes, index;
    uint8_t isolated;
    double *values;
};
EXPORT int NVPW_MetricsEvaluator_EvaluateToGpuValues(struct evaluate *params) {
    if (params->size != 96 || params->request_bytes != 12 || params->stride != sizeof(struct request)) return 8;
    if (!params->evaluator->attributes || params->index >= params->image->count) return 8;
    for (size_t i = 0; i < params->count; i++) {
        const char *name = params->evaluator->names[params->requests[i].metric];
        params->values[i] = pm_value(name, &params->image->samples[params->index]);
#ifdef MODEL_WRONG
        params->values[i] += 1;
#endif
    }
    return 0;
}
