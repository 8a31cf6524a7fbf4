/* SPDX-License-Identifier: Apache-2.0
 *
 * chase_reference CPU BYTES LINE_BYTES SEED PAGES WARMUP_BYTES SECONDS: the plain counterpart of
 * chaosity-latency. The same chain in the same kind of pages after the same warm-up, followed by
 * the loop that anybody would write. Prints a ready line, waits for a line on stdin, and prints
 * nanoseconds a step as JSON: over the whole run, and the median over its pieces of some tenth of a
 * millisecond, between which nothing happens but that the clock is read.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "chase.h"
#include "common.h"
#include "cpus.h"
#include "memory.h"

/* Long enough that the clock's 20 or 30 ns do not count, short enough that most pieces are not
 * interrupted: of pieces of 1 ms nearly all have their share of what else happens on the CPU, and
 * their median would be of that, too. */
static const double piece_ns = 1e5;

/* Not inlined, so that the loop is compiled as it stands. */
static __attribute__((noinline)) void **follow(void **p, size_t n) {
    while (n--)
        p = *p;
    return p;
}

static double timed(void ***p, size_t steps) {
    uint64_t begin = monotonic_ns();
    *p = follow(*p, steps);
    if (*p == NULL) /* never; but the last load must be back before the clock is read */
        refuse("the chain is broken");
    return (double)(monotonic_ns() - begin);
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char *argv[]) {
    set_program_name("chase_reference");
    if (argc != 8)
        refuse("CPU BYTES LINE_BYTES SEED PAGES WARMUP_BYTES SECONDS are needed");
    int cpu = (int)parse_count("CPU", argv[1], MOST_CPUS - 1);
    size_t bytes = parse_count("BYTES", argv[2], SIZE_MAX);
    size_t line_bytes = parse_count("LINE_BYTES", argv[3], SIZE_MAX);
    uint64_t seed = parse_count("SEED", argv[4], UINT64_MAX);
    struct placement placement = {.pages = parse_page_kind("PAGES", argv[5])};
    size_t warmup_bytes = parse_count("WARMUP_BYTES", argv[6], SIZE_MAX);
    double seconds = parse_seconds("SECONDS", argv[7], 3600);

    pin_to_cpu(cpu);
    struct mapping mapping = map_memory(bytes, placement);
    struct chase chase = {mapping.start, bytes / line_bytes, line_bytes};
    chase_lay(&chase, 0, chase.lines);
    chase_shuffle(&chase, seed);
    huge_page_bytes(&mapping); /* refuses a mixture of pages */

    printf("{\"event\":\"ready\"}\n");
    fflush(stdout);
    if (wait_for_start() != START_GO)
        return 0;
    void **p = (void **)(void *)chase.start;
    p = follow(p, (warmup_bytes < bytes ? warmup_bytes : bytes) / line_bytes);
    size_t steps = 1024;
    while (timed(&p, steps) < piece_ns)
        steps *= 2;

    size_t most = (size_t)(seconds * 1e9 / piece_ns) + 1, pieces = 0;
    double *each = malloc(most * sizeof *each);
    if (each == NULL)
        refuse("out of memory");
    uint64_t begin = monotonic_ns();
    while (pieces < most && (double)(monotonic_ns() - begin) < seconds * 1e9)
        each[pieces++] = timed(&p, steps) / (double)steps;
    double all = (double)(monotonic_ns() - begin) / ((double)pieces * (double)steps);
    qsort(each, pieces, sizeof *each, compare);
    printf("{\"event\":\"done\",\"mean_ns\":%.9g,\"median_ns\":%.9g,\"pieces\":%zu}\n", all,
           each[(pieces - 1) / 2], pieces);
    free(each);
    return 0;
}
