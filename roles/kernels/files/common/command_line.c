/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/command_line.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "common/placed_memory.h"
#include "common/start_line_and_signals.h"

enum { HELP_WIDTH = 92, HELP_COLUMN = 24, MOST_OPTIONS = 32 };

uint64_t program_started_ns;

void set_flag(void *target, const char *option, const char *text) {
    (void)option, (void)text;
    *(bool *)target = true;
}

void set_seconds(void *target, const char *option, const char *text) {
    *(double *)target = parse_seconds(option, text, MOST_SECONDS);
}

void set_bytes(void *target, const char *option, const char *text) {
    *(size_t *)target = parse_count(option, text, MOST_BYTES);
}

void set_count(void *target, const char *option, const char *text) {
    *(uint64_t *)target = parse_count(option, text, UINT64_MAX);
}

void set_cpus(void *target, const char *option, const char *text) {
    *(struct index_list *)target = parse_index_list(option, text, MOST_CPUS);
}

void set_nodes(void *target, const char *option, const char *text) {
    *(struct index_list *)target = parse_index_list(option, text, MOST_NODES);
}

void set_pages(void *target, const char *option, const char *text) {
    *(enum page_kind *)target = parse_page_kind(option, text);
}

_Noreturn void print_version_and_exit(void *target, const char *option, const char *text) {
    (void)target, (void)option, (void)text;
    printf("%s %s (%s)\n", program.name, program_version, compiler_version);
    exit(EXIT_VALID);
}

/* Prints text in lines of at most HELP_WIDTH characters. The first line begins at `column`, where
 * the cursor is; all other lines begin at `indent`. A line break in the text begins a new line. */
static void print_wrapped(const char *text, int column, int indent) {
    bool first = true;
    while (*text != '\0') {
        int length = (int)strcspn(text, " \n");
        if (!first && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        column += printf("%.*s", length, text);
        first = text[length] == '\n';
        if (first) {
            printf("\n%*s", indent, "");
            column = indent;
        }
        text += length + (text[length] != '\0');
    }
    putchar('\n');
}

static void print_option(const struct command_option *option) {
    const char *space = option->value != NULL ? " " : "";
    const char *value = option->value != NULL ? option->value : "";
    int column = printf("  %s%s%s", option->name, space, value);
    if (column > HELP_COLUMN - 2) {
        printf("\n");
        column = 0;
    }
    printf("%*s", HELP_COLUMN - column, "");
    print_wrapped(option->help, HELP_COLUMN, HELP_COLUMN);
}

_Noreturn void print_help_and_exit(void *target, const char *option, const char *text) {
    (void)target, (void)option, (void)text;
    const char *before = "Usage:";
    for (const char *line = program.usage; *line != '\0'; before = "      ") {
        int length = (int)strcspn(line, "\n");
        printf("%s %s %.*s\n", before, program.name, length, line);
        line += length + (line[length] != '\0');
    }
    print_wrapped(program.summary, 0, 0);
    printf("\n");
    for (const struct command_option *row = program.options; row->name != NULL; row++)
        print_option(row);
    printf("\n");
    print_wrapped(program.notes, 0, 0);
    printf("\nExample: %s\n", program.example);
    exit(EXIT_VALID);
}

void parse_command_line(int argc, char *argv[]) {
    program_started_ns = monotonic_ns();
    set_program_name(program.name);
    install_signal_handlers();
    /* With line buffering, a reader of the output gets each line at once. */
    setvbuf(stdout, NULL, _IOLBF, 1 << 16);

    struct option names[MOST_OPTIONS + 1] = {{0}};
    for (int i = 0; program.options[i].name != NULL && i < MOST_OPTIONS; i++)
        names[i] = (struct option){
            .name = program.options[i].name + strlen("--"),
            .has_arg = program.options[i].value != NULL ? required_argument : no_argument,
            .val = i,
        };
    /* getopt prints no errors, because this function prints each error as one sentence. */
    opterr = 0;
    for (int i; (i = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (i == '?')
            refuse("'%s' is not an option or lacks its value, see --help", argv[optind - 1]);
        const struct command_option *row = &program.options[i];
        row->set(row->target, row->name, optarg);
    }
    if (optind < argc)
        refuse("'%s' does not belong to an option, see --help", argv[optind]);
}
