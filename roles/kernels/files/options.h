/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of the programs that measure latency: the options that they have in common, and
 * the loop over all options.
 */
#ifndef CHAOSITY_OPTIONS_H
#define CHAOSITY_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common.h"
#include "memory.h"

/* How a run goes, whatever is measured. */
struct course {
    struct placement placement;
    size_t line_bytes; /* 0: as the kernel says; else a power of two that can hold an address */
    double sample_seconds, max_seconds;
    bool wait_for_start;
    uint64_t started_ns; /* when main() began */
};

/* A size above this is nonsense that would overflow: 1 PiB. */
#define MOST_BYTES ((uint64_t)1 << 50)

/* Values for getopt_long(), above those of the programs' own options. */
enum common_option {
    LINE_BYTES_OPTION = 256,
    MEMORY_NODES,
    PAGES,
    SAMPLE_SECONDS,
    MAX_SECONDS,
    BARRIER,
    VERSION_OPTION,
    HELP
};

/* For a program's table, before the terminating line. */
/* clang-format off */
#define COMMON_OPTIONS                                               \
    {"line-bytes", required_argument, NULL, LINE_BYTES_OPTION},      \
    {"memory-nodes", required_argument, NULL, MEMORY_NODES},         \
    {"pages", required_argument, NULL, PAGES},                       \
    {"sample-seconds", required_argument, NULL, SAMPLE_SECONDS},     \
    {"max-seconds", required_argument, NULL, MAX_SECONDS},           \
    {"barrier", no_argument, NULL, BARRIER},                         \
    {"version", no_argument, NULL, VERSION_OPTION},                  \
    {"help", no_argument, NULL, HELP}
/* clang-format on */

/* For a program's help. */
#define COMMON_HELP                                                                                \
    "  --line-bytes N        size of a cache line (default: as the kernel says)\n"                 \
    "  --memory-nodes LIST   bind the pages to these NUMA nodes (default: they are where CPU N\n"  \
    "                        is, which touches them first)\n"                                      \
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"   \
    "                        huge pages); huge pages that are not there are an error\n"            \
    "  --sample-seconds S    a sample is as many blocks as last this long (default 0.05)\n"        \
    "  --max-seconds S       stop measuring after this long (default 10)\n"                        \
    "  --barrier             after the ready line, wait for a line on stdin before measuring;\n"   \
    "                        the end of input means stop\n"                                        \
    "  --version             print version (with a hash of the sources) and compiler\n"            \
    "  --help                print this\n"

/* Sets one of the program's own options from its text (NULL when it takes none). */
typedef void set_option(void *request, int option, const char *text);

/* Reads the whole command line and prints what --version and --help ask for. Refuses what is no
 * option. */
void read_options(int argc, char *argv[], const struct option options[], const char *help,
                  struct course *course, set_option *set, void *request);

/* Prints the last fields of the ready line: the course and what was built. */
void print_course(const struct course *course);

/* What stopped a run that this kept from starting; NULL when it started. */
const char *stopped_by_start(enum start start);

#endif
