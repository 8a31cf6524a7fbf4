/* SPDX-License-Identifier: Apache-2.0
 *
 * A sparse matrix times a vector: y = A x + s, with A in compressed sparse rows. Rows have 8 to 24
 * nonzeros, 16 on average, in random columns. A thread reads its rows in order and gathers values
 * from all of x, as with matrices of unordered grids and graphs.
 *
 * The scalar s depends on the pass. Checks: after each pass, the last row of each part and a moving
 * row; at the end, all rows and the arrays that are only read.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/errors.h"
#include "common/placed_memory.h"
#include "streams/stream_kernels.h"
#include "workloads/workload_table.h"

/* Number of rows after which the lengths of rows repeat, so that the start of a row needs no sum
 * over all earlier rows. Each period has each length from 8 to 24 once, in an order without trend
 * (7 and 17 have no common divisor).
 */
enum { PERIOD = 17, SHORTEST = 8, MEAN = 16, PERIOD_NONZEROS = PERIOD * MEAN };

struct spmv {
    struct mapping mapping;
    size_t rows, nonzeros;
    int threads;
    uint64_t *start; /* start of each row, and one more entry for the end of the last row */
    uint32_t *column;
    double *value, *x, *y;
};

enum { VALUES = 1, X = 2 }; /* numbers of the patterns for both arrays */

static uint64_t start_of(size_t row) {
    uint64_t start = row / PERIOD * PERIOD_NONZEROS;
    for (size_t i = 0; i < row % PERIOD; i++)
        start += SHORTEST + i * 7 % PERIOD;
    return start;
}

static void fill_start(void *self, size_t from, size_t count) {
    const struct spmv *spmv = self;
    for (size_t row = from; row < from + count; row++)
        spmv->start[row] = start_of(row);
}

static void fill_column(void *self, size_t from, size_t count) {
    const struct spmv *spmv = self;
    for (size_t i = from; i < from + count; i++)
        spmv->column[i] = (uint32_t)random_index(i, spmv->rows);
}

static void fill_value(void *self, size_t from, size_t count) {
    const struct spmv *spmv = self;
    for (size_t i = from; i < from + count; i++)
        spmv->value[i] = pattern(VALUES, i);
}

static void fill_x(void *self, size_t from, size_t count) {
    const struct spmv *spmv = self;
    for (size_t row = from; row < from + count; row++)
        spmv->x[row] = pattern(X, row);
}

static void fill_y(void *self, size_t from, size_t count) {
    const struct spmv *spmv = self;
    for (size_t row = from; row < from + count; row++)
        spmv->y[row] = never_written;
}

static void set_up(void *self, int index) {
    struct spmv *spmv = self;
    size_t row = first_of_thread(spmv->rows, index, spmv->threads);
    size_t rows = first_of_thread(spmv->rows, index + 1, spmv->threads) - row;
    size_t at = start_of(row), nonzeros = start_of(row + rows) - at;
    size_t starts = index + 1 == spmv->threads ? rows + 1 : rows;
    const struct {
        struct array_slice part;
        fill_function *fill;
    } arrays[] = {
        {{spmv->start, sizeof *spmv->start, row, starts}, fill_start},
        {{spmv->column, sizeof *spmv->column, at, nonzeros}, fill_column},
        {{spmv->value, sizeof *spmv->value, at, nonzeros}, fill_value},
        {{spmv->x, sizeof *spmv->x, row, rows}, fill_x},
        {{spmv->y, sizeof *spmv->y, row, rows}, fill_y},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        fill_slice(&spmv->mapping, arrays[i].part, arrays[i].fill, spmv);
}

static void multiply(const struct spmv *spmv, size_t from, size_t end, double scalar) {
    const uint64_t *restrict start = spmv->start;
    const uint32_t *restrict column = spmv->column;
    const double *restrict value = spmv->value, *restrict x = spmv->x;
    double *restrict y = spmv->y;
    for (size_t row = from; row < end; row++) {
        double sum = scalar;
        for (uint64_t i = start[row]; i < start[row + 1]; i++)
            sum += value[i] * x[column[i]];
        y[row] = sum;
    }
}

static void check_row(const struct spmv *spmv, size_t row, uint64_t pass, struct verdict *verdict) {
    uint64_t sum = 0, end = start_of(row + 1);
    for (uint64_t i = start_of(row); i < end; i++)
        sum += (uint64_t)(pattern(VALUES, i) * pattern(X, random_index(i, spmv->rows)));
    check_equal(spmv->y[row], (double)sum + scalar_of(pass), verdict);
}

static void run(void *self, int index, uint64_t pass, struct verdict *verdict) {
    const struct spmv *spmv = self;
    size_t from = first_of_thread(spmv->rows, index, spmv->threads);
    size_t end = first_of_thread(spmv->rows, index + 1, spmv->threads);
    if (!mutant_skips(pass))
        multiply(spmv, from, end - (mutant_leaves_out_the_end(pass) ? 1 : 0), scalar_of(pass));
    if (MUTANT == CORRUPTED)
        spmv->y[from] = mutated(spmv->y[from], pass);
    check_row(spmv, end - 1, pass, verdict);
    check_row(spmv, from + pass * 2654435761u % (end - from), pass, verdict);
}

static void check_nonzero(const struct spmv *spmv, uint64_t i, struct verdict *verdict) {
    check_equal(spmv->value[i], pattern(VALUES, i), verdict);
    check_equal(spmv->column[i], (double)random_index(i, spmv->rows), verdict);
}

static void check(void *self, int index, uint64_t passes, struct verdict *verdict) {
    const struct spmv *spmv = self;
    size_t end = first_of_thread(spmv->rows, index + 1, spmv->threads);
    for (size_t row = first_of_thread(spmv->rows, index, spmv->threads); row < end; row++) {
        if (passes > 0)
            check_row(spmv, row, passes - 1, verdict);
        else
            check_equal(spmv->y[row], never_written, verdict);
        check_equal((double)spmv->start[row], (double)start_of(row), verdict);
        check_equal(spmv->x[row], pattern(X, row), verdict);
        for (uint64_t i = start_of(row); i < start_of(row + 1); i++)
            check_nonzero(spmv, i, verdict);
    }
}

static void print_details(const void *self) {
    const struct spmv *spmv = self;
    printf("\"rows\":%zu,\"nonzeros\":%zu,", spmv->rows, spmv->nonzeros);
}

/* Sets the number of rows to the largest multiple of PERIOD that fits. */
static void set_shape(struct spmv *spmv, const struct workload_options *options) {
    const size_t row_bytes = sizeof *spmv->start + sizeof *spmv->x + sizeof *spmv->y;
    const size_t nonzero_bytes = sizeof *spmv->column + sizeof *spmv->value;
    const size_t period_bytes = PERIOD * row_bytes + PERIOD_NONZEROS * nonzero_bytes;
    spmv->rows = options->bytes / period_bytes * PERIOD;
    spmv->nonzeros = start_of(spmv->rows);
    require_one_per_thread(options, spmv->rows, "rows of the matrix");
    if (spmv->rows > UINT32_MAX)
        refuse("--bytes %zu is too large: spmv has 32-bit columns", options->bytes);
}

struct passes lay_out_spmv(const struct workload_options *options, struct mapping *mapping) {
    struct spmv *spmv = calloc(1, sizeof *spmv);
    if (spmv == NULL)
        refuse("out of memory");
    spmv->threads = options->threads;
    set_shape(spmv, options);
    size_t starts = whole_pages((spmv->rows + 1) * sizeof *spmv->start);
    size_t columns = whole_pages(spmv->nonzeros * sizeof *spmv->column);
    size_t values = whole_pages(spmv->nonzeros * sizeof *spmv->value);
    size_t vector = whole_pages(spmv->rows * sizeof *spmv->x);
    size_t bytes = starts + columns + values + 2 * vector;
    *mapping = spmv->mapping = map_memory(bytes, options->placement);
    char *at = mapping->start;
    spmv->start = (uint64_t *)(void *)at;
    spmv->column = (uint32_t *)(void *)(at += starts);
    spmv->value = (double *)(void *)(at += columns);
    spmv->x = (double *)(void *)(at += values);
    spmv->y = (double *)(void *)(at += vector);
    return (struct passes){
        .amount_per_pass = spmv->nonzeros,
        .set_up = set_up,
        .print_details = print_details,
        .run = run,
        .check = check,
        .self = spmv,
    };
}
