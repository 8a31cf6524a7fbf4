/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that all programs have: for the placement of memory, the length of samples, and the end
 * of the measurement.
 */
#ifndef CHAOSITY_RUN_OPTIONS_H
#define CHAOSITY_RUN_OPTIONS_H

#include <stdbool.h>

#include "common/command_line.h"
#include "common/placed_memory.h"

struct run_options {
    struct placement placement;
    double sample_seconds, max_seconds; /* each program sets its defaults */
    bool wait_for_start;                /* --barrier */
};

/* Rows of a table of options. `run` is a struct run_options; `sample` is a text for --help that
 * says what a sample consists of. */
/* clang-format off */
#define MEMORY_NODES_OPTION(run, text) \
    {"--memory-nodes", "LIST", text, set_nodes, &(run).placement.nodes}
#define PAGES_OPTION(run) \
    {"--pages", "KIND", \
     "base (default), thp (transparent huge pages), 2M or 1G (reserved huge pages). It is an " \
     "error when there are not enough huge pages", \
     set_pages, &(run).placement.pages}
#define RUN_OPTIONS(run, sample) \
    {"--sample-seconds", "S", sample, set_seconds, &(run).sample_seconds}, \
    {"--max-seconds", "S", "stop measuring after this time (default 10)", \
     set_seconds, &(run).max_seconds}, \
    {"--barrier", NULL, \
     "after the ready line, wait for a line on stdin before measuring; the end of input means stop", \
     set_flag, &(run).wait_for_start}, \
    VERSION_AND_HELP
/* clang-format on */

/* print_run_options() prints the options as fields of the ready line, with a comma after the last
 * field. print_build() prints the last fields of the ready line: how long set-up took (since main()
 * began), the versions of program and compiler, and the instruction set. */
void print_run_options(const struct run_options *run);
void print_build(void);

#endif
