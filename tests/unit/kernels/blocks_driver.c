/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads durations of blocks in nanoseconds, one a line, and prints for each the centre of its bin;
 * then the median of all, and last all of them as a sample has them, for 4 accesses a block.
 */
#include <inttypes.h>
#include <stdio.h>

#include "latency/timed_blocks.h"

static struct histogram all;

int main(void) {
    for (uint64_t duration; scanf("%" SCNu64, &duration) == 1;) {
        static struct histogram one;
        one = (struct histogram){0};
        histogram_add(&one, duration);
        histogram_add(&all, duration);
        printf("%.17g\n", histogram_median_ns(&one));
    }
    printf("%.17g\n", histogram_median_ns(&all));
    histogram_print(&all, 4);
    printf("\n");
    return 0;
}
