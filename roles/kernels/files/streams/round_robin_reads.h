/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading from several memory nodes in turn, so that all paths to them are loaded at once: set-up,
 * start, samples, validation, each told as a line of JSON.
 */
#ifndef CHAOSITY_ROTATION_H
#define CHAOSITY_ROTATION_H

#include <stddef.h>

#include "common/cpu_lists.h"
#include "common/command_line.h"

struct rotation {
    struct index_list cpus;
    size_t buffer_bytes;  /* of each node; a multiple of LINE_BYTES, at least a line a thread */
    double turn_seconds;  /* how long a thread reads from one node */
    struct course course; /* whose placement has the nodes */
};

/* Runs it and prints the lines. Returns the exit code. */
int rotate(const struct rotation *rotation);

#endif
