/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "options.h"

#include <stdio.h>
#include <stdlib.h>

#include "common.h"
#include "cpus.h"

/* A limit that only keeps nonsense from overflowing: a year. */
static const double most_seconds = 366 * 86400.0;

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
static bool set_common(struct course *course, int option, const char *text, const char *help) {
    switch (option) {
    case LINE_BYTES_OPTION: course->line_bytes = parse_line_bytes(text); return true;
    case MEMORY_NODES:
        course->placement.nodes = parse_index_list("--memory-nodes", text, MOST_NODES);
        return true;
    case PAGES: course->placement.pages = parse_page_kind("--pages", text); return true;
    case SAMPLE_SECONDS:
        course->sample_seconds = parse_seconds("--sample-seconds", text, most_seconds);
        return true;
    case MAX_SECONDS:
        course->max_seconds = parse_seconds("--max-seconds", text, most_seconds);
        return true;
    case BARRIER: course->wait_for_start = true; return true;
    case VERSION_OPTION:
        printf("%s %s (%s)\n", get_program_name(), VERSION, COMPILER);
        exit(EXIT_VALID);
    case HELP: fputs(help, stdout); exit(EXIT_VALID);
    default: return false;
    }
}

void read_options(int argc, char *argv[], const struct option options[], const char *help,
                  struct course *course, set_option *set, void *request) {
    course->started_ns = monotonic_ns();
    course->sample_seconds = 0.05;
    course->max_seconds = 10;
    opterr = 0; /* one sentence, this program's own */
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == '?')
            refuse("'%s' is no option or lacks its value, see --help", argv[optind - 1]);
        if (!set_common(course, option, optarg, help))
            set(request, option, optarg);
    }
    if (optind < argc)
        refuse("'%s' belongs to no option, see --help", argv[optind]);
}

void print_course(const struct course *course) {
    printf("\"sample_seconds\":%g,\"max_seconds\":%g,\"setup_seconds\":%.6f,\"version\":\"%s\","
           "\"compiler\":\"%s\"}\n",
           course->sample_seconds, course->max_seconds,
           (double)(monotonic_ns() - course->started_ns) * 1e-9, VERSION, COMPILER);
}

const char *stopped_by_start(enum start start) {
    if (start == START_GO)
        return NULL;
    return start == START_END_OF_INPUT ? "end_of_input" : "signal";
}
