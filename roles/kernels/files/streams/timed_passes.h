/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequence of a run of a kernel that works in complete passes: set-up, start, samples,
 * validation.
 */
#ifndef CHAOSITY_TIMED_PASSES_H
#define CHAOSITY_TIMED_PASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/command_line.h"
#include "streams/expected_values.h"
#include "streams/thread_team.h"

/* The work in passes, numbered from 0. Each thread does its part of every pass; `index` is the
 * number of the thread. */
struct passes {
    const char *kernel;
    const char *amount;       /* name of the quantity that samples count: "bytes", "elements" */
    uint64_t amount_per_pass; /* this quantity in one pass of all threads together */
    uint64_t warmup;          /* number of passes before the first sample */
    /* Says whether a pass reads what other threads wrote in the pass before, so that threads
     * wait. */
    bool wait_for_all;
    void (*set_up)(void *self, int index);
    /* Text with fields of the ready line, each with a comma. */
    void (*print_details)(const void *self);
    void (*run)(void *self, int index, uint64_t pass, struct verdict *verdict);
    void (*check)(void *self, int index, uint64_t passes, struct verdict *verdict);
    /* Arrays of a stream with which the instruction set is chosen, or NULL. */
    const struct arrays *arrays;
    void *self; /* the first argument of the functions above */
};

/* Row of a table of options; `passes` is a uint64_t. */
/* clang-format off */
#define WARMUP_PASSES_OPTION(passes) \
    {"--warmup-passes", "N", \
     "passes before the first sample (default 1: the first pass after set-up fills TLBs and " \
     "caches, wakes cores and raises their clock)", set_warmup_passes, &(passes)}
/* clang-format on */
option_setter set_warmup_passes;

/* Runs the passes with a team whose CPUs, run options and mappings are set, and prints the ready,
 * sample and done lines. Returns the exit code. */
int run_timed_passes(struct team *team, const struct passes *work);

#endif
