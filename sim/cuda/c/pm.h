/* What libcupti.so and libnvperf_host.so of the stand-in share of PM sampling: images, and what metrics are worth.
 *
 * A device's tensor pipes are busy in every second millisecond of the wall clock, and so nothing depends on the test machine's load:
 *   ...tensor...       100 where they are busy, 0 elsewhere; in between by the share of the sample
 *   ...hit_rate...     90 in such a sample, and not a number in one in which they are idle throughout
 *   ...bytes...        2e12
 *   all others         50
 * Metrics that begin with these words do not fit into one pass with others, where CUPTI_MODEL has pm_passes: l1tex, SM_B, lts, LTS. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PM_NAME = 128, PM_MAGIC = 0x504d };
#define PM_PERIOD 1000000u

struct pm_sample {
    uint64_t start, end;
};
struct pm_image {
    uint64_t magic, capacity, count;
    struct pm_sample samples[];
};

/* Nanoseconds of [0, time) in which the pipes are busy. */
static inline uint64_t pm_busy_until(uint64_t time) {
    uint64_t rest = time % (2 * PM_PERIOD);
    return time / (2 * PM_PERIOD) * PM_PERIOD + (rest < PM_PERIOD ? rest : PM_PERIOD);
}

static inline double pm_value(const char *name, const struct pm_sample *sample) {
    double share = (double)(pm_busy_until(sample->end) - pm_busy_until(sample->start)) / (double)(sample->end - sample->start);
    if (strstr(name, "tensor")) return 100.0 * share;
    if (strstr(name, "hit_rate")) return share > 0 ? 90.0 : NAN;
    if (strstr(name, "bytes")) return 2e12;
    return 50.0;
}

/* A metric of the chip: with two underscores, and with what follows the name. */
static inline bool pm_known(const char *name) {
    return name && strlen(name) < PM_NAME && strstr(name, "__") && strchr(name, '.') && !strstr(name, "unknown");
}
