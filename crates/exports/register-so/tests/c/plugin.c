/* A plug-in with an attach and a detach of its own, which it calls as any library calls its own functions: through the loader. */
#include <stdarg.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT double attach(long a, long b, long c, long d, long e, long f, double x0, double x1, double x2, double x3, double x4, double x5,
                     double x6, double x7, long g, double x8)
{
    printf("  " WHO ": attach %ld %ld %ld %ld %ld %ld %ld %g %g %g %g %g %g %g %g %g\n", a, b, c, d, e, f, g, x0, x1, x2, x3, x4, x5, x6,
           x7, x8);
    return (double)(a + g) + x0 + x7 + x8;
}

EXPORT const char* detach(const char* format, ...)
{
    static char text[100];
    va_list     list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return text;
}

typedef double attach_t(long, long, long, long, long, long, double, double, double, double, double, double, double, double, long, double);

EXPORT void plugin_run(void)
{
    double got = attach(1, 2, 3, 4, 5, 6, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 7, 8.5);
    printf("  " WHO ": %g %s\n", got, detach("%d %s %g %g", 42, "words", 0.25, -1e300));
}

/* Its address, as a table of functions has it. */
EXPORT attach_t* plugin_function(void)
{
    return attach;
}
