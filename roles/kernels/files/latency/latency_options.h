/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that both latency programs have.
 */
#ifndef CHAOSITY_LATENCY_OPTIONS_H
#define CHAOSITY_LATENCY_OPTIONS_H

#include "common/command_line.h"
#include "common/run_options.h"

/* Rows of a table of options. `target` is an int; `options` has the fields `line_bytes`, a size_t
 * (0: as the kernel reports it), and `run_options`. */
/* clang-format off */
#define CPU_OPTION(name, text, target) {name, "N", text, set_cpu, &(target)}
#define LATENCY_OPTIONS(options) \
    {"--line-bytes", "N", "size of a cache line (default: as the kernel reports it)", \
     set_line_bytes, &(options).line_bytes}, \
    MEMORY_NODES_OPTION((options).run_options, "bind the pages to these NUMA nodes (default: they lie on the node " \
                             "of --cpu, which touches them first)"), \
    PAGES_OPTION((options).run_options), \
    RUN_OPTIONS((options).run_options, \
                "duration of a sample, rounded up to whole blocks (default 0.05)")
/* clang-format on */

option_setter set_cpu;        /* int */
option_setter set_line_bytes; /* size_t: a power of two, at least the size of an address */

#endif
