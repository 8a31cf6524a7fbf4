/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-workload runs programs limited by memory, to measure the effect of page placement.
 *
 * All arrays lie in one mapping, whose address is in the ready line, so that another program can
 * place and count the pages of the mapping. Without --memory-nodes, the mapping has the memory
 * policy of the process, which the caller of the process may have set.
 *
 * The kernels are listed in workload_table.c; the sequence of a run is in timed_passes.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/command_line.h"
#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/placed_memory.h"
#include "common/run_options.h"
#include "streams/stream_options.h"
#include "workloads/workload_table.h"

static struct {
    const struct workload *workload;
    struct index_list cpus;
    size_t bytes;
    bool leader_touches;
    uint64_t warmup_passes;
    struct run_options run_options;
} options = {
    .run_options = {.sample_seconds = 0.02, .max_seconds = 10},
    .warmup_passes = 1,
};

/* The passes of the chosen workload; some of their functions are replaced below. */
static struct passes workload_passes;

static void set_kernel(void *target, const char *option, const char *text) {
    (void)option;
    for (int i = 0; i < workload_count; i++)
        if (strcmp(workloads[i].name, text) == 0) {
            *(const struct workload **)target = &workloads[i];
            return;
        }
    refuse("unknown kernel '%s'; --list prints all kernels", text);
}

static void list_workloads(void *target, const char *option, const char *text) {
    (void)target, (void)option, (void)text;
    for (int i = 0; i < workload_count; i++)
        printf("%-8s %s\n", workloads[i].name, workloads[i].formula);
    exit(EXIT_VALID);
}

static void set_touch(void *target, const char *option, const char *text) {
    (void)option;
    if (strcmp(text, "own") != 0 && strcmp(text, "leader") != 0)
        refuse("--touch takes own or leader, not '%s'", text);
    *(bool *)target = strcmp(text, "leader") == 0;
}

static const struct command_option command_options[] = {
    {"--kernel", "NAME", "a kernel of --list", set_kernel, &options.workload},
    CPUS_OPTION(options.cpus),
    {"--bytes", "N", "largest size of all arrays together", set_bytes, &options.bytes},
    {"--touch", "own|leader",
     "which thread touches pages first: each thread those of its part (default), or the first "
     "thread all of them, as in programs that read their input before they start threads",
     set_touch, &options.leader_touches},
    MEMORY_NODES_OPTION(options.run_options,
                        "bind the pages to these NUMA nodes (default: the policy of the process "
                        "applies; if it has no policy, a page lies where it is first touched)"),
    PAGES_OPTION(options.run_options),
    WARMUP_PASSES_OPTION(options.warmup_passes),
    {"--list", NULL, "print the kernels, one per line with its formula", list_workloads, NULL},
    RUN_OPTIONS(options.run_options,
                "duration of a sample, rounded up to whole passes (default 0.02)"),
};

/* Only the triad has loops for several instruction sets, so only the triad shows one. */
static const char *isa_of_triad(void) {
    return workload_passes.arrays != NULL ? chosen_isa_name() : NULL;
}

static void set_up(void *self, int index) {
    (void)self;
    if (!options.leader_touches)
        workload_passes.set_up(workload_passes.self, index);
    else if (index == 0)
        for (int i = 0; i < options.cpus.count; i++)
            workload_passes.set_up(workload_passes.self, i);
}

static void print_details(const void *self) {
    printf("\"bytes\":%zu,\"touch\":\"%s\",", options.bytes,
           options.leader_touches ? "leader" : "own");
    workload_passes.print_details(self);
}

static int run(void) {
    if (options.workload == NULL || options.cpus.count == 0 || options.bytes == 0)
        refuse("--kernel, --cpus and --bytes (above 0) are needed, see --help");
    require_allowed_cpus(options.cpus);
    struct workload_options size = {
        .bytes = options.bytes,
        .threads = options.cpus.count,
        .placement = options.run_options.placement,
    };
    struct mapping mapping;
    workload_passes = options.workload->lay_out(&size, &mapping);
    struct passes passes = workload_passes;
    passes.kernel = options.workload->name;
    passes.amount = "elements";
    passes.warmup = options.warmup_passes;
    passes.set_up = set_up;
    passes.print_details = print_details;
    struct team team = {
        .cpus = options.cpus,
        .run_options = &options.run_options,
        .mappings = &mapping,
        .mapping_count = 1,
    };
    int exit_code = run_timed_passes(&team, &passes);
    options.workload->release(workload_passes.self);
    free_index_list(options.cpus);
    free_index_list(options.run_options.placement.nodes);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-workload",
    .usage = "--kernel NAME --cpus LIST --bytes N [OPTION]...",
    .summary = "Runs a program limited by memory, whose pages other programs may place and move.",
    .options = command_options,
    .notes =
        "SIGTERM or SIGINT ends the measurement after the current pass; then the result is "
        "checked. Prints JSON lines: one \"ready\", many \"sample\" (elements computed between two "
        "readings of CLOCK_MONOTONIC, in nanoseconds: elements of the result, gathered values, "
        "cells or nonzeros), one \"done\". Exit code: 0 right result, 1 wrong result, 2 refused.",
    .example =
        "a gather from 1 GiB that the first of four threads touched, for 2 seconds\n"
        "  chaosity-workload --kernel gather --cpus 0-3 --bytes 1073741824 --touch leader \\\n"
        "      --pages thp --max-seconds 2",
    .instruction_set = isa_of_triad,
    .run = run,
};
