/* SPDX-License-Identifier: Apache-2.0
 *
 * chase_driver LINES LINE_BYTES FIRST_SEED SEEDS [BLOCK_LINES]: makes a chain for each seed and prints, a line a
 * seed, three groups of numbers: what chase_return() and chase_intact() say; which lines one turn
 * visits, from the first line on; and where chase_walk() ends after 0, 1, ... 199 steps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "latency/pointer_chase.h"

static void print_line(const struct chase *chase, void **line) {
    printf(" %zu", ((size_t)line - (size_t)chase->start) / chase->line_bytes);
}

static void print_chain(const struct chase *chase, size_t block_lines, uint64_t seed) {
    void **begin = (void **)(void *)chase->start, **at = begin;
    for (size_t from = 0; from < chase->lines; from += 7) /* in pieces, as the program does */
        chase_link_to_self(chase, from, chase->lines - from < 7 ? chase->lines - from : 7);
    chase_shuffle(chase, block_lines, seed);
    printf("%" PRIu64 " %d :", chase_steps_to_return(begin, 2 * chase->lines), chase_is_permutation(chase));
    for (size_t i = 0; i < chase->lines; i++, at = *at)
        print_line(chase, at);
    printf(" :");
    for (uint64_t steps = 0; steps < 200; steps++)
        print_line(chase, chase_walk(begin, steps));
    printf("\n");
}

int main(int argc, char *argv[]) {
    if (argc != 5 && argc != 6)
        return 2;
    struct chase chase = {.lines = strtoull(argv[1], NULL, 10),
                          .line_bytes = strtoull(argv[2], NULL, 10)};
    uint64_t first = strtoull(argv[3], NULL, 10), seeds = strtoull(argv[4], NULL, 10);
    chase.start = aligned_alloc(chase.line_bytes, chase.lines * chase.line_bytes);
    if (chase.start == NULL)
        return 2;
    for (uint64_t i = 0; i < seeds; i++)
        print_chain(&chase, argc == 6 ? strtoull(argv[5], NULL, 10) : 0, first + i);
    free(chase.start);
    return 0;
}
