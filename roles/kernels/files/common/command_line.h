/* SPDX-License-Identifier: Apache-2.0
 *
 * How every program begins: its command line, with the options that all have in common, and those
 * of the programs that measure latency.
 */
#ifndef CHAOSITY_OPTIONS_H
#define CHAOSITY_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/process.h"
#include "common/placed_memory.h"

/* How a run goes, whatever is measured. */
struct course {
    struct placement placement;
    double sample_seconds, max_seconds; /* the program sets what it does by default */
    bool wait_for_start;
    uint64_t started_ns; /* when main() began */
    /* Of latency alone. 0: as the kernel says; else a power of two that can hold an address. */
    size_t line_bytes;
};

/* What is above these is nonsense that would overflow: 1 PiB, a year. */
#define MOST_BYTES ((uint64_t)1 << 50)
#define MOST_SECONDS (366 * 86400.0)

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
    {"memory-nodes", required_argument, NULL, MEMORY_NODES},         \
    {"pages", required_argument, NULL, PAGES},                       \
    {"sample-seconds", required_argument, NULL, SAMPLE_SECONDS},     \
    {"max-seconds", required_argument, NULL, MAX_SECONDS},           \
    {"barrier", no_argument, NULL, BARRIER},                         \
    {"version", no_argument, NULL, VERSION_OPTION},                  \
    {"help", no_argument, NULL, HELP}
#define LATENCY_OPTIONS                                              \
    {"line-bytes", required_argument, NULL, LINE_BYTES_OPTION},      \
    COMMON_OPTIONS
/* clang-format on */

/* For the help of a program that has them. */
#define LATENCY_HELP                                                                               \
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

struct program {
    const char *name; /* stands before every error */
    const char *help;
    const char *isa; /* the instruction set it was built for, where that makes results differ */
    const struct option *options;
    set_option *set;
};

/* Version of the program, with a hash of its sources and compiler flags, and of the compiler. */
extern const char program_version[], compiler_version[];

/* To be called first by main(): gets ready to be stopped, to print lines and to complain, reads the
 * whole command line and prints what --version and --help ask for. Refuses what is no option. */
void begin_program(int argc, char *argv[], const struct program *program, struct course *course,
                   void *request);

/* Print fields of the ready line: the course, with a comma at the end, and last of all what set-up
 * took and what was built (`isa` as in struct program). */
void print_course(const struct course *course);
void print_build(const struct course *course, const char *isa);

/* What stopped a run that this kept from starting; NULL when it started. */
const char *stopped_by_start(enum start start);

#endif
