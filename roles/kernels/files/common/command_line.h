/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of every program: one table of options is both parsed and printed by --help.
 */
#ifndef CHAOSITY_COMMAND_LINE_H
#define CHAOSITY_COMMAND_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Sets `target` to the value in `text` (NULL for an option without a value). Refuses a wrong value
 * and names the option. */
typedef void option_setter(void *target, const char *option, const char *text);

struct command_option {
    const char *name;  /* with its dashes: "--cpus" */
    const char *value; /* name of the value in --help: "LIST"; NULL: the option has no value */
    const char *help;  /* text that --help breaks into lines */
    option_setter *set;
    void *target;
};

/* Setters for common types of targets. */
option_setter set_flag;    /* bool: becomes true */
option_setter set_seconds; /* double: above 0 */
option_setter set_bytes;   /* size_t */
option_setter set_count;   /* uint64_t */
option_setter set_cpus;    /* struct index_list */
option_setter set_nodes;   /* struct index_list */
option_setter set_pages;   /* enum page_kind */
option_setter print_version_and_exit, print_help_and_exit;

/* The last rows of each table of options. */
/* clang-format off */
#define VERSION_AND_HELP \
    {"--version", NULL, "print the version with a hash of the sources, and the compiler", \
     print_version_and_exit, NULL}, \
    {"--help", NULL, "print this", print_help_and_exit, NULL}, \
    {NULL, NULL, NULL, NULL, NULL}
/* clang-format on */

struct program {
    const char *name;
    const char *usage;   /* the arguments; each further line is another way to call it */
    const char *summary; /* one sentence */
    const struct command_option *options;
    const char *notes;   /* after the options; a line for each paragraph */
    const char *example; /* the last lines of --help */
    const char *(*instruction_set)(void); /* name of the set of its loops; NULL: none is chosen */
    int (*run)(void);                     /* measures and returns the exit code */
};

/* Each program defines this; common/main.c runs it. */
extern const struct program program;

/* Version of the program, with a hash of its sources and compiler flags, and of the compiler. */
extern const char program_version[], compiler_version[];

/* Time at which parse_command_line() was called, see monotonic_ns(). */
extern uint64_t program_started_ns;

/* Prepares signals and output, and sets the targets of all given options. Refuses an unknown option
 * and an option without its value. */
void parse_command_line(int argc, char *argv[]);

#endif
