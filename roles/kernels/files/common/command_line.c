/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/command_line.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/process.h"
#include "common/cpu_lists.h"

/* Room for an address in each line, with something beside it. */
static const size_t least_line_bytes = 16;

static size_t parse_line_bytes(const char *text) {
    size_t bytes = parse_count("--line-bytes", text, MOST_BYTES);
    if (bytes < least_line_bytes || (bytes & (bytes - 1)) != 0)
        refuse("--line-bytes must be a power of two and at least %zu, not %zu", least_line_bytes,
               bytes);
    return bytes;
}

/* Returns whether the option was one of the common ones. */
static bool set_common(struct course *course, int option, const char *text) {
    switch (option) {
    case LINE_BYTES_OPTION: course->line_bytes = parse_line_bytes(text); return true;
    case MEMORY_NODES:
        course->placement.nodes = parse_index_list("--memory-nodes", text, MOST_NODES);
        return true;
    case PAGES: course->placement.pages = parse_page_kind("--pages", text); return true;
    case SAMPLE_SECONDS:
        course->sample_seconds = parse_seconds("--sample-seconds", text, MOST_SECONDS);
        return true;
    case MAX_SECONDS:
        course->max_seconds = parse_seconds("--max-seconds", text, MOST_SECONDS);
        return true;
    case BARRIER: course->wait_for_start = true; return true;
    default: return false;
    }
}

static _Noreturn void print_version(const struct program *program) {
    printf("%s %s (%s", program->name, program_version, compiler_version);
    if (program->isa != NULL)
        printf(", %s", program->isa);
    printf(")\n");
    exit(EXIT_VALID);
}

static _Noreturn void print_help(const struct program *program) {
    fputs(program->help, stdout);
    exit(EXIT_VALID);
}

void begin_program(int argc, char *argv[], const struct program *program, struct course *course,
                   void *request) {
    course->started_ns = monotonic_ns();
    set_program_name(program->name);
    install_signal_handlers();
    setvbuf(stdout, NULL, _IOLBF, 1 << 16); /* a line is seen as soon as it is there */

    opterr = 0; /* one sentence, this program's own */
    for (int option; (option = getopt_long(argc, argv, "", program->options, NULL)) != -1;) {
        if (option == '?')
            refuse("'%s' is no option or lacks its value, see --help", argv[optind - 1]);
        if (option == VERSION_OPTION)
            print_version(program);
        if (option == HELP)
            print_help(program);
        if (!set_common(course, option, optarg))
            program->set(request, option, optarg);
    }
    if (optind < argc)
        refuse("'%s' belongs to no option, see --help", argv[optind]);
}

void print_course(const struct course *course) {
    printf("\"sample_seconds\":%g,\"max_seconds\":%g,", course->sample_seconds,
           course->max_seconds);
}

void print_build(const struct course *course, const char *isa) {
    printf("\"setup_seconds\":%.6f,\"version\":\"%s\",\"compiler\":\"%s\"",
           (double)(monotonic_ns() - course->started_ns) * 1e-9, program_version,
           compiler_version);
    if (isa != NULL)
        printf(",\"isa\":\"%s\"", isa);
    printf("}\n");
}

const char *stopped_by_start(enum start start) {
    if (start == START_GO)
        return NULL;
    return start == START_END_OF_INPUT ? "end_of_input" : "signal";
}
