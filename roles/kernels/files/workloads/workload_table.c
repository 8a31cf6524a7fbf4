/* SPDX-License-Identifier: Apache-2.0 */
#include "workloads/workload_table.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/process.h"

const struct workload workloads[] = {
    {"triad", "a[i] = b[i] + s * c[i]: own parts alone", lay_out_triad, release_triad},
    {"gather", "sum += table[random]: all of the table", lay_out_gather, free},
    {"stencil", "2-D, mean of 4 neighbours, two grids: own rows and one of each neighbour",
     lay_out_stencil, free},
    {"spmv", "y = A x + s, A sparse in CSR with random columns: own rows, all of x", lay_out_spmv,
     free},
};
const int workload_count = sizeof workloads / sizeof workloads[0];

void require_a_share(const struct demand *demand, uint64_t units, const char *what) {
    if (units < (uint64_t)demand->threads)
        refuse("--bytes %zu is too small: it gives %" PRIu64 " %s to %d threads", demand->bytes,
               units, what, demand->threads);
}
