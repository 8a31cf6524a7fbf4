/* SPDX-License-Identifier: Apache-2.0
 *
 * The sequence of a run of a kernel that works in whole passes: set-up, start, samples, validation.
 */
#ifndef CHAOSITY_TIMED_PASSES_H
#define CHAOSITY_TIMED_PASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/command_line.h"
#include "streams/expected_values.h"
#include "streams/thread_team.h"

/* The work in passes, numbered from 0. Each thread does its part of every pass; `index` is the
 * thread's number. */
struct passes {
    const char *kernel;
    const char *amount;       /* name of the quantity that samples count: "bytes", "elements" */
    uint64_t amount_per_pass; /* of all threads together */
    uint64_t warmup;          /* number of passes before the first sample */
    bool wait_for_all; /* a pass reads what other threads wrote in the pass before: threads wait */
    void (*set_up)(void *self, int index);
    void (*print_details)(const void *self); /* fields of the ready line, each with a comma */
    void (*run)(void *self, int index, uint64_t pass, struct verdict *verdict);
    void (*check)(void *self, int index, uint64_t passes, struct verdict *verdict);
    const struct arrays *arrays; /* of a stream, on which the instruction set is chosen, or NULL */
    void *self; /* first argument of these functions */
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
