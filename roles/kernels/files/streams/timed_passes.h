/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of a kernel that works in whole passes: set-up, start, samples, validation, each told as
 * a line of JSON.
 */
#ifndef CHAOSITY_ROUNDS_H
#define CHAOSITY_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "streams/expected_values.h"
#include "streams/thread_team.h"

/* The work, in passes that are numbered from 0 on; each member does a part of every pass. */
struct passes {
    const char *kernel;
    const char *isa;    /* as in struct program */
    const char *amount; /* name of what the samples count */
    uint64_t amount_per_pass;
    uint64_t warmup; /* passes before the first sample */
    bool meet;       /* a pass reads what others wrote in the one before: all wait for all */
    void (*set_up)(void *self, int index);
    void (*print_about)(const void *self); /* fields of the ready line, with a comma at the end */
    void (*run)(void *self, int index, uint64_t pass, struct verdict *verdict);
    void (*check)(void *self, int index, uint64_t passes, struct verdict *verdict);
    void *self;
};

/* Runs it with a team that has its CPUs, course and mappings, and prints the lines. Returns the
 * exit code. */
int run_rounds(struct team *team, const struct passes *work);

#endif
