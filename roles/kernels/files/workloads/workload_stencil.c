/* SPDX-License-Identifier: Apache-2.0
 *
 * Jacobi's method on a square grid: each cell becomes the mean of its four neighbours plus a number
 * that depends on the pass. A pass reads one grid and writes another grid; after each pass, the two
 * grids swap roles. Threads have blocks of complete rows, so each thread reads one row of each
 * neighbouring thread.
 *
 * The contents are harmonic: (row + 1) * (column + 1) is the mean of its neighbours. So after a
 * pass, inner cells contain this value plus the offset of the pass, and the border is set to the
 * same sum. All values are whole numbers. Checks: after each pass, the last inner cell of each part
 * and a moving cell; at the end, all cells of both grids.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/errors.h"
#include "common/placed_memory.h"
#include "common/vector_clones.h"
#include "streams/stream_kernels.h"
#include "workloads/workload_table.h"

/* Largest number of cells in a row. Three rows of 64 KiB fit into the L2 cache of every core, so a
 * pass reads and writes each cell in memory only once. */
enum { MOST_COLUMNS = 8192, LEAST_ROWS = 3 };

struct stencil {
    struct mapping mapping;
    size_t rows, columns;
    int threads;
    double *grid[2];
};

/* Returns the content of a cell after a number of passes. */
static inline double cell(size_t row, size_t column, uint64_t passes) {
    return (double)((row + 1) * (column + 1)) + (double)(passes % CYCLE);
}

struct filling {
    const struct stencil *stencil;
    int grid;
};

static void fill(void *context, size_t from, size_t count) {
    const struct filling *filling = context;
    const struct stencil *stencil = filling->stencil;
    double *to = stencil->grid[filling->grid];
    for (size_t i = from; i < from + count; i++)
        to[i] = filling->grid == 0 ? cell(i / stencil->columns, i % stencil->columns, 0)
                                   : never_written;
}

static void set_up(void *self, int index) {
    const struct stencil *stencil = self;
    size_t from = first_of_thread(stencil->rows, index, stencil->threads) * stencil->columns;
    size_t end = first_of_thread(stencil->rows, index + 1, stencil->threads) * stencil->columns;
    for (int grid = 0; grid < 2; grid++) {
        struct array_slice part = {stencil->grid[grid], sizeof(double), from, end - from};
        struct filling filling = {stencil, grid};
        fill_slice(&stencil->mapping, part, fill, &filling);
    }
}

VECTOR_CLONES static void smooth(double *restrict to, const double *restrict here, size_t columns,
                                 double added) {
    const double *above = here - columns, *below = here + columns;
    for (size_t j = 1; j < columns - 1; j++)
        to[j] = 0.25 * (above[j] + below[j] + here[j - 1] + here[j + 1]) + added;
}

static void run_rows(const struct stencil *stencil, size_t from, size_t end, uint64_t pass) {
    size_t columns = stencil->columns, last = stencil->rows - 1;
    const double *old = stencil->grid[pass % 2];
    double *next = stencil->grid[(pass + 1) % 2];
    double added = cell(0, 0, pass + 1) - cell(0, 0, pass);
    for (size_t row = from; row < end; row++) {
        double *to = next + row * columns;
        bool inner = row > 0 && row < last;
        if (inner)
            smooth(to, old + row * columns, columns, added);
        for (size_t j = 0; j < columns; j += inner ? columns - 1 : 1)
            to[j] = cell(row, j, pass + 1);
    }
}

static void check_cell(const struct stencil *stencil, size_t at, uint64_t passes,
                       struct verdict *verdict) {
    size_t row = at / stencil->columns, column = at % stencil->columns;
    check_equal(stencil->grid[passes % 2][at], cell(row, column, passes), verdict);
}

static void run(void *self, int index, uint64_t pass, struct verdict *verdict) {
    const struct stencil *stencil = self;
    size_t columns = stencil->columns;
    size_t from = first_of_thread(stencil->rows, index, stencil->threads);
    size_t end = first_of_thread(stencil->rows, index + 1, stencil->threads);
    if (!mutant_skips(pass))
        run_rows(stencil, from, end - (mutant_leaves_out_the_end(pass) ? 1 : 0), pass);
    if (MUTANT == CORRUPTED) {
        double *cells = stencil->grid[(pass + 1) % 2];
        cells[from * columns] = mutated(cells[from * columns], pass);
    }
    check_cell(stencil, end * columns - 2, pass + 1, verdict);
    uint64_t moving = pass * 2654435761u % ((end - from) * columns);
    check_cell(stencil, from * columns + moving, pass + 1, verdict);
}

static void check(void *self, int index, uint64_t passes, struct verdict *verdict) {
    const struct stencil *stencil = self;
    size_t from = first_of_thread(stencil->rows, index, stencil->threads) * stencil->columns;
    size_t end = first_of_thread(stencil->rows, index + 1, stencil->threads) * stencil->columns;
    for (size_t i = from; i < end; i++) {
        check_cell(stencil, i, passes, verdict);
        if (passes > 0)
            check_cell(stencil, i, passes - 1, verdict);
        else
            check_equal(stencil->grid[1][i], never_written, verdict);
    }
}

static void print_details(const void *self) {
    const struct stencil *stencil = self;
    printf("\"rows\":%zu,\"columns\":%zu,", stencil->rows, stencil->columns);
}

/* Makes the grid as square as the longest row allows; rows consist of complete cache lines. */
static void set_shape(struct stencil *stencil, const struct workload_options *options) {
    size_t cells = options->bytes / 2 / sizeof(double);
    size_t columns = (size_t)fmin(sqrt((double)cells), MOST_COLUMNS) / LINE_DOUBLES * LINE_DOUBLES;
    stencil->columns = columns;
    stencil->rows = columns > 0 ? cells / columns : 0;
    if (stencil->rows < LEAST_ROWS)
        stencil->rows = 0;
    require_one_per_thread(options, stencil->rows, "rows of a grid");
}

struct passes lay_out_stencil(const struct workload_options *options, struct mapping *mapping) {
    struct stencil *stencil = calloc(1, sizeof *stencil);
    if (stencil == NULL)
        refuse("out of memory");
    stencil->threads = options->threads;
    set_shape(stencil, options);
    size_t bytes = whole_pages(stencil->rows * stencil->columns * sizeof(double));
    *mapping = stencil->mapping = map_memory(2 * bytes, options->placement);
    for (int grid = 0; grid < 2; grid++)
        stencil->grid[grid] = (double *)(void *)(mapping->start + (size_t)grid * bytes);
    return (struct passes){
        .amount_per_pass = stencil->rows * stencil->columns,
        .wait_for_all = true,
        .set_up = set_up,
        .print_details = print_details,
        .run = run,
        .check = check,
        .self = stencil,
    };
}
