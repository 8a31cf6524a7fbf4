/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads random elements of one table. The indexes of the elements are computed instead of read, so
 * that indexes take no bandwidth. Each read moves one cache line and uses one value of it.
 *
 * Checks: the sum of each thread in every pass, and all of the table at the end.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/placed_memory.h"
#include "common/spin_barrier.h"
#include "streams/stream_kernels.h"
#include "workloads/workload_table.h"

/* Number of phases. A pass gathers one value for each line of the table. After PHASES passes, the
 * same indexes come again; until then, the number of values that were read is the number of values
 * in the table. */
enum { PHASES = LINE_DOUBLES };

struct sums {
    _Alignas(PADDING_BYTES) double of[PHASES]; /* sum of a thread in the first pass of each phase */
};

struct gather {
    struct mapping mapping;
    size_t elements; /* of the table */
    size_t a_pass;   /* number of values that a pass gathers */
    int threads;
    struct sums sums[];
};

static double *table_of(const struct gather *gather) { return (double *)gather->mapping.start; }

static void fill(void *self, size_t from, size_t count) {
    double *table = table_of(self);
    for (size_t i = from; i < from + count; i++)
        table[i] = pattern(0, i);
}

static void set_up(void *self, int index) {
    const struct gather *gather = self;
    size_t from = first_of_thread(gather->elements, index, gather->threads);
    size_t end = first_of_thread(gather->elements, index + 1, gather->threads);
    struct array_slice part = {table_of(gather), sizeof(double), from, end - from};
    fill_slice(&gather->mapping, part, fill, self);
}

/* Returns the values that a thread gathers in a phase, as numbers for random_index(). */
struct numbers {
    uint64_t from, end;
};

static struct numbers numbers_of(const struct gather *gather, int index, int phase) {
    uint64_t before = (uint64_t)phase * gather->a_pass;
    return (struct numbers){
        .from = before + first_of_thread(gather->a_pass, index, gather->threads),
        .end = before + first_of_thread(gather->a_pass, index + 1, gather->threads),
    };
}

/* The loop has two sums, so that one addition does not wait for the other. */
static double sum_at_random(const double *table, size_t elements, struct numbers numbers) {
    double sum = 0, other = 0;
    uint64_t i = numbers.from;
    for (; i + 1 < numbers.end; i += 2) {
        sum += table[random_index(i, elements)];
        other += table[random_index(i + 1, elements)];
    }
    if (i < numbers.end)
        sum += table[random_index(i, elements)];
    return sum + other;
}

static double expected_sum(const struct gather *gather, struct numbers numbers) {
    uint64_t sum = 0;
    for (uint64_t i = numbers.from; i < numbers.end; i++)
        sum += (unsigned)pattern(0, random_index(i, gather->elements));
    return (double)sum;
}

static void run(void *self, int index, uint64_t pass, struct verdict *verdict) {
    struct gather *gather = self;
    int phase = (int)(pass % PHASES);
    struct numbers numbers = numbers_of(gather, index, phase);
    if (mutant_leaves_out_the_end(pass))
        numbers.end--;
    if (mutant_skips(pass))
        numbers.end = numbers.from;
    double sum = sum_at_random(table_of(gather), gather->elements, numbers);
    if (MUTANT == CORRUPTED && index == 0)
        *table_of(gather) = mutated(*table_of(gather), pass);
    if (pass < PHASES)
        gather->sums[index].of[phase] = sum;
    else
        check_equal(sum, gather->sums[index].of[phase], verdict);
}

static void check(void *self, int index, uint64_t passes, struct verdict *verdict) {
    const struct gather *gather = self;
    for (int phase = 0; phase < PHASES && (uint64_t)phase < passes; phase++)
        check_equal(gather->sums[index].of[phase],
                    expected_sum(gather, numbers_of(gather, index, phase)), verdict);
    size_t end = first_of_thread(gather->elements, index + 1, gather->threads);
    for (size_t i = first_of_thread(gather->elements, index, gather->threads); i < end; i++)
        check_equal(table_of(gather)[i], pattern(0, i), verdict);
}

static void print_details(const void *self) {
    const struct gather *gather = self;
    printf("\"table_elements\":%zu,", gather->elements);
}

struct passes lay_out_gather(const struct workload_options *options, struct mapping *mapping) {
    size_t lines = options->bytes / LINE_BYTES;
    require_one_per_thread(options, lines, "cache lines");
    size_t bytes = sizeof(struct gather) + (size_t)options->threads * sizeof(struct sums);
    struct gather *gather = allocate_padded(1, bytes);
    gather->elements = lines * LINE_DOUBLES;
    gather->a_pass = lines;
    gather->threads = options->threads;
    *mapping = gather->mapping = map_memory(lines * LINE_BYTES, options->placement);
    return (struct passes){
        .amount_per_pass = gather->a_pass,
        .set_up = set_up,
        .print_details = print_details,
        .run = run,
        .check = check,
        .self = gather,
    };
}
