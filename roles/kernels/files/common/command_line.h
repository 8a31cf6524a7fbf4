/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of every program. The same table of options is used to parse the command line
 * and to print --help.
 */
#ifndef CHAOSITY_COMMAND_LINE_H
#define CHAOSITY_COMMAND_LINE_H

#include <stddef.h>
#include <stdint.h>

/* Sets `target` to the value in `text` (NULL for an option without a value). If the value is wrong,
 * the process ends with an error that names the option. */
typedef void option_setter(void *target, const char *option, const char *text);

struct command_option {
    const char *name;  /* name with its dashes: "--cpus" */
    const char *value; /* name of the value in --help: "LIST"; NULL: the option has no value */
    const char *help;  /* text that --help breaks into lines */
    option_setter *set;
    void *target;
};

/* Setters for common types of targets; each comment names the type of the target. */
option_setter set_flag;    /* target is a bool, which becomes true */
option_setter set_seconds; /* target is a double; the value is above 0 */
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
    const char *usage;   /* the arguments; each other line is another way to call the program */
    const char *summary; /* one sentence on what the program does */
    const struct command_option *options;
    const char *notes;   /* text after the options in --help; a line for each paragraph */
    const char *example; /* the last lines of --help */
    const char *(*instruction_set)(void); /* name of the chosen instruction set, or NULL */
    int (*run)(void);                     /* measures and returns the exit code */
};

/* Each program defines the variable `program`; common/main.c runs the program that it describes. */
extern const struct program program;

/* Version of the program, with a hash of its sources and compiler flags, and version of the
 * compiler. */
extern const char program_version[], compiler_version[];

/* Time at which parse_command_line() was called, see monotonic_ns(). */
extern uint64_t program_started_ns;

/* Prepares signals and output, and sets the targets of all given options. An unknown option, or an
 * option without its value, ends the process with an error. */
void parse_command_line(int argc, char *argv[]);

#endif
