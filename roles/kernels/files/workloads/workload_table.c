/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/workload_table.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/errors.h"

const struct workload workloads[] = {
    {"triad", "a[i] = b[i] + s * c[i]: only own parts", lay_out_triad, release_triad},
    {"gather", "sum += table[random]: all of the table", lay_out_gather, free},
    {"stencil", "2-D, mean of 4 neighbours, two grids: own rows and one of each neighbour",
     lay_out_stencil, free},
    {"spmv", "y = A x + s, A sparse in CSR with random columns: own rows, all of x", lay_out_spmv,
     free},
};
const int workload_count = sizeof workloads / sizeof workloads[0];

void require_one_per_thread(const struct workload_options *options, uint64_t units,
                            const char *what) {
    if (units < (uint64_t)options->threads)
        refuse("--bytes %zu is too small: it gives %" PRIu64 " %s to %d threads", options->bytes,
               units, what, options->threads);
}
