/* CUPTI's PM sampling as the plainest program does it, beside which part g holds midair's helper: one thread looks every so often, decodes, has each
 * sample's values evaluated by the metrics' names through the host interface, and makes the image anew. None of our code is in it.
 *
 *   plainloop LIBCUPTI RATE SECONDS METRIC...      (CUPTI's names)
 *
 * Prints a line "@ {json}": samples, seconds, and the thread's processor time in each step, as a share of one processor.
 * The structs match CUPTI 12.6 and later: their size, a reserved pointer, then the fields. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SIZE(type, last) (offsetof(type, last) + sizeof(((type *)0)->last))
#define HEAD size_t size; void *reserved

typedef struct { HEAD; } Initialize;
typedef struct { HEAD; size_t gpu; const char *chip; } Chip;
typedef struct { HEAD; size_t gpu, bytes; uint8_t *image; } Availability;
typedef struct { HEAD; int kind; const char *chip; const uint8_t *availability; void *object; } HostNew;
typedef struct { HEAD; void *object; const char **names; size_t count; } HostAdd;
typedef struct { HEAD; void *object; size_t bytes; } HostSize;
typedef struct { HEAD; void *object; size_t bytes; uint8_t *image; } HostImage;
typedef struct { HEAD; void *object; const uint8_t *image; size_t bytes, index; const char **names; size_t count; double *values; } Evaluate;
typedef struct { HEAD; size_t gpu; void *object; } Enable;
typedef struct { HEAD; void *object; size_t bytes; const uint8_t *config; size_t buffer; uint64_t interval; int trigger, append; } Configure;
typedef struct { HEAD; void *object; } OfObject;
typedef struct { HEAD; void *object; const char **names; size_t count; uint32_t samples; size_t bytes; } ImageSize;
typedef struct { HEAD; void *object; size_t bytes; uint8_t *image; } ImageNew;
typedef struct { HEAD; void *object; uint8_t *image; size_t bytes; int reason; uint8_t overflow; } Decode;
typedef struct { HEAD; const uint8_t *image; size_t bytes, total, populated, completed; } Info;
typedef struct { HEAD; void *object; const uint8_t *image; size_t bytes, index; uint64_t start, end; } Sample;

/* CUPTI's numbers: sampling, by time, the oldest samples stay, the image is full, the hardware's buffer was full. */
enum { PM_SAMPLING = 1, BY_TIME = 1, KEEP_OLDEST = 0, IMAGE_FULL = 1, BUFFER_FULL = 8 };

static void *cupti;

static int (*function(const char *name))(void *) {
    int (*found)(void *) = (int (*)(void *))dlsym(cupti, name);
    if (!found) {
        fprintf(stderr, "%s is missing\n", name);
        exit(3);
    }
    return found;
}

static void must(const char *name, int status) {
    if (status) {
        fprintf(stderr, "%s: %d\n", name, status);
        exit(3);
    }
}

#define CALL(name, params) must(name, function(name)(&(params)))

static double seconds_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double own(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }

int main(int count, char **words) {
    if (count < 5) return 2;
    const double rate = atof(words[2]), length = atof(words[3]);
    const char **names = (const char **)words + 4;
    const size_t metrics = (size_t)count - 4;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*start_driver)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    cupti = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
    if (!start_driver || start_driver(0) || !cupti) {
        fprintf(stderr, "no driver, or no CUPTI: %s\n", dlerror());
        return 3;
    }
    Initialize begin = {.size = sizeof begin};
    CALL("cuptiProfilerInitialize", begin);
    Chip chip = {.size = SIZE(Chip, chip)};
    CALL("cuptiDeviceGetChipName", chip);
    Availability there = {.size = SIZE(Availability, image)};
    CALL("cuptiPmSamplingGetCounterAvailability", there);
    there.image = calloc(there.bytes, 1);
    CALL("cuptiPmSamplingGetCounterAvailability", there);

    HostNew host = {.size = SIZE(HostNew, object), .kind = PM_SAMPLING, .chip = chip.chip, .availability = there.image};
    CALL("cuptiProfilerHostInitialize", host);
    HostAdd add = {.size = SIZE(HostAdd, count), .object = host.object, .names = names, .count = metrics};
    CALL("cuptiProfilerHostConfigAddMetrics", add);
    HostSize size = {.size = SIZE(HostSize, bytes), .object = host.object};
    CALL("cuptiProfilerHostGetConfigImageSize", size);
    HostImage config = {.size = SIZE(HostImage, image), .object = host.object, .bytes = size.bytes, .image = calloc(size.bytes, 1)};
    CALL("cuptiProfilerHostGetConfigImage", config);

    Enable on = {.size = SIZE(Enable, object)};
    CALL("cuptiPmSamplingEnable", on);
    const uint64_t interval = (uint64_t)(1e9 / rate);
    Configure set = {.size = SIZE(Configure, append), .object = on.object, .bytes = config.bytes, .config = config.image,
                     .buffer = (size_t)64 << 20, .interval = interval, .trigger = BY_TIME, .append = KEEP_OLDEST};
    CALL("cuptiPmSamplingSetConfig", set);
    /* Looks as often as the helper's, and an image with room for two of them. */
    const double pause = 0.1 < 700 / rate ? 0.1 : 700 / rate;
    const uint32_t room = 2 * pause * rate < 512 ? 512 : (uint32_t)(2 * pause * rate);
    ImageSize image_size = {.size = SIZE(ImageSize, bytes), .object = on.object, .names = names, .count = metrics, .samples = room};
    CALL("cuptiPmSamplingGetCounterDataSize", image_size);
    uint8_t *image = calloc(image_size.bytes, 1);
    ImageNew anew = {.size = SIZE(ImageNew, image), .object = on.object, .bytes = image_size.bytes, .image = image};
    CALL("cuptiPmSamplingCounterDataImageInitialize", anew);
    OfObject object = {.size = SIZE(OfObject, object), .object = on.object};
    CALL("cuptiPmSamplingStart", object);

    int (*decode)(void *) = function("cuptiPmSamplingDecodeData"), (*evaluate)(void *) = function("cuptiProfilerHostEvaluateToGpuValues");
    int (*times)(void *) = function("cuptiPmSamplingCounterDataGetSampleInfo");
    double *values = calloc(metrics, sizeof *values), *sums = calloc(metrics, sizeof *sums);
    long *counts = calloc(metrics, sizeof *counts);
    double decoding = 0, evaluating = 0, making = 0, longest = 0;
    long samples = 0, looks = 0, overflows = 0, lost = 0, odd = 0;
    uint64_t last = 0, first = 0;
    const double began = seconds_of(CLOCK_MONOTONIC), whole = own();
    double next = began;
    for (int over = 0; !over;) {
        next += pause;
        const double wait = next - seconds_of(CLOCK_MONOTONIC);
        if (wait > 0) nanosleep(&(struct timespec){(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)}, NULL);
        over = seconds_of(CLOCK_MONOTONIC) - began >= length;
        if (over) CALL("cuptiPmSamplingStop", object);
        for (int more = 1; more;) {
            const double a = own();
            Decode look = {.size = SIZE(Decode, overflow), .object = on.object, .image = image, .bytes = image_size.bytes};
            const int status = decode(&look);
            if (status != BUFFER_FULL) must("cuptiPmSamplingDecodeData", status);
            overflows += look.overflow || status == BUFFER_FULL;
            more = look.reason == IMAGE_FULL;
            Info info = {.size = SIZE(Info, completed), .image = image, .bytes = image_size.bytes};
            CALL("cuptiPmSamplingGetCounterDataInfo", info);
            const double b = own();
            for (size_t at = 0; at < info.completed; ++at) {
                Sample sample = {.size = SIZE(Sample, end), .object = on.object, .image = image, .bytes = image_size.bytes, .index = at};
                must("cuptiPmSamplingCounterDataGetSampleInfo", times(&sample));
                Evaluate of = {.size = SIZE(Evaluate, values), .object = host.object, .image = image, .bytes = image_size.bytes,
                               .index = at, .names = names, .count = metrics, .values = values};
                must("cuptiProfilerHostEvaluateToGpuValues", evaluate(&of));
                if (last && sample.start > last && sample.start - last > interval / 2) lost += (long)((double)(sample.start - last) / (double)interval + 0.5);
                if (last && sample.end <= last) ++odd;
                if (!first) first = sample.end;
                last = sample.end;
                for (size_t metric = 0; metric < metrics; ++metric) {
                    if (isfinite(values[metric])) sums[metric] += values[metric], ++counts[metric];
                }
                ++samples;
            }
            const double c = own();
            CALL("cuptiPmSamplingCounterDataImageInitialize", anew);
            const double d = own();
            decoding += b - a, evaluating += c - b, making += d - c;
            longest = d - a > longest ? d - a : longest;
            ++looks;
        }
    }
    const double seconds = seconds_of(CLOCK_MONOTONIC) - began, all = own() - whole;
    printf("@ {\"samples\": %ld, \"lost\": %ld, \"odd\": %ld, \"overflows\": %ld, \"looks\": %ld, \"seconds\": %.3f, \"span\": %.3f, \"image_bytes\": %zu, "
           "\"decode\": %.4f, \"evaluate\": %.4f, \"initialise\": %.4f, \"all\": %.4f, \"means\": [",
           samples, lost, odd, overflows, looks, seconds, (double)(last - first) / 1e9, image_size.bytes, decoding / seconds, evaluating / seconds, making / seconds, all / seconds);
    for (size_t metric = 0; metric < metrics; ++metric) printf("%s%.4f", metric ? ", " : "", counts[metric] ? sums[metric] / (double)counts[metric] : 0.0);
    printf("]}\n");
    fflush(stdout);
    OfObject off = {.size = SIZE(OfObject, object), .object = on.object};
    CALL("cuptiPmSamplingDisable", off);
    return 0;
}
