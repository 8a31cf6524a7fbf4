/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-workload: programs that memory bounds, to see what the placement of their pages does.
 *
 * All arrays lie in one mapping, whose address is told, so that its pages can be placed and counted
 * from outside. Unless --memory-nodes asks for it, the mapping has no policy of its own: that of
 * the process rules, which whoever starts it may have set.
 *
 * workload_table.c has the table of kernels, timed_passes.c the course of a run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/process.h"
#include "common/cpu_lists.h"
#include "common/command_line.h"
#include "streams/timed_passes.h"
#include "streams/stream_kernels.h"
#include "workloads/workload_table.h"

static const char help[] =
    "Usage: chaosity-workload --kernel NAME --cpus LIST --bytes N [OPTION]...\n"
    "Runs a program that memory bounds, whose pages others may place and move.\n"
    "\n"
    "  --kernel NAME         one of --list\n"
    "  --cpus LIST           one pinned thread on each of these CPUs (Linux list: 0-3,8)\n"
    "  --bytes N             size of all arrays together, at most\n"
    "  --touch own|leader    who touches pages first: each thread those of its part (default), or\n"
    "                        the first thread all, as programs do that read in before they fork\n"
    "  --memory-nodes LIST   bind the pages to these NUMA nodes (default: the policy of the\n"
    "                        process decides, and where it has none, the first touch)\n"
    "  --pages KIND          base (default), thp (transparent huge pages), 2M or 1G (reserved\n"
    "                        huge pages); huge pages that are not there are an error\n"
    "  --sample-seconds S    a sample is as many whole passes as last this long (default 0.02)\n"
    "  --max-seconds S       stop measuring after this long (default 10)\n"
    "  --warmup-passes N     passes before the first sample (default 1: the first pass after\n"
    "                        set-up fills TLBs and caches, wakes cores and raises their clock)\n"
    "  --barrier             after the ready line, wait for a line on stdin before measuring;\n"
    "                        the end of input means stop\n"
    "  --list                print the kernels, one a line with what each does\n"
    "  --version             print version (with a hash of the sources), compiler and\n"
    "                        instruction set\n"
    "  --help                print this\n"
    "\n"
    "SIGTERM or SIGINT ends the measurement after the pass that runs; then the result is\n"
    "checked. Prints JSON lines: one \"ready\", many \"sample\" (elements computed between two\n"
    "readings of CLOCK_MONOTONIC, in nanoseconds: of the result, values gathered, cells,\n"
    "nonzeros), one \"done\". Exit code: 0 right result, 1 wrong result, 2 could not do what was\n"
    "asked.\n"
    "\n"
    "Example: a gather from 1 GiB that the first of four threads touched, for 2 seconds\n"
    "  chaosity-workload --kernel gather --cpus 0-3 --bytes 1073741824 --touch leader \\\n"
    "      --pages thp --max-seconds 2\n";

enum option_value { KERNEL = 1, CPUS, BYTES, TOUCH, WARMUP_PASSES, LIST };

static const struct option options[] = {
    {"kernel", required_argument, NULL, KERNEL},
    {"cpus", required_argument, NULL, CPUS},
    {"bytes", required_argument, NULL, BYTES},
    {"touch", required_argument, NULL, TOUCH},
    {"warmup-passes", required_argument, NULL, WARMUP_PASSES},
    {"list", no_argument, NULL, LIST},
    COMMON_OPTIONS,
    {NULL, 0, NULL, 0},
};

struct request {
    const struct workload *workload;
    struct index_list cpus;
    size_t bytes;
    bool leader_touches;
    uint64_t warmup_passes;
    struct course course;
};

/* The passes of a workload, of which those that are the same for all are done here. */
struct state {
    const struct request *request;
    struct passes work;
};

static const struct workload *find_workload(const char *name) {
    for (int i = 0; i < workload_count; i++)
        if (strcmp(workloads[i].name, name) == 0)
            return &workloads[i];
    refuse("there is no kernel '%s', --list prints those there are", name);
}

static _Noreturn void list_workloads(void) {
    for (int i = 0; i < workload_count; i++)
        printf("%-8s %s\n", workloads[i].name, workloads[i].formula);
    exit(EXIT_VALID);
}

static bool parse_touch(const char *text) {
    if (strcmp(text, "own") != 0 && strcmp(text, "leader") != 0)
        refuse("--touch takes own or leader, not '%s'", text);
    return strcmp(text, "leader") == 0;
}

static void set_own_option(void *to, int option, const char *text) {
    struct request *request = to;
    switch ((enum option_value)option) {
    case KERNEL: request->workload = find_workload(text); return;
    case CPUS: request->cpus = parse_index_list("--cpus", text, MOST_CPUS); return;
    case BYTES: request->bytes = parse_count("--bytes", text, MOST_BYTES); return;
    case TOUCH: request->leader_touches = parse_touch(text); return;
    case WARMUP_PASSES:
        request->warmup_passes = parse_count("--warmup-passes", text, UINT32_MAX);
        return;
    case LIST: list_workloads();
    }
}

static void set_up(void *self, int index) {
    const struct state *state = self;
    const struct passes *work = &state->work;
    if (!state->request->leader_touches)
        work->set_up(work->self, index);
    else if (index == 0)
        for (int i = 0; i < state->request->cpus.count; i++)
            work->set_up(work->self, i);
}

static void print_about(const void *self) {
    const struct state *state = self;
    printf("\"bytes\":%zu,\"touch\":\"%s\",", state->request->bytes,
           state->request->leader_touches ? "leader" : "own");
    state->work.print_about(state->work.self);
}

static void run(void *self, int index, uint64_t pass, struct verdict *verdict) {
    const struct state *state = self;
    state->work.run(state->work.self, index, pass, verdict);
}

static void check(void *self, int index, uint64_t passes, struct verdict *verdict) {
    const struct state *state = self;
    state->work.check(state->work.self, index, passes, verdict);
}

static int run_workload(const struct request *request) {
    struct demand demand = {
        .bytes = request->bytes,
        .threads = request->cpus.count,
        .placement = request->course.placement,
    };
    struct mapping mapping;
    struct state state = {request, request->workload->lay_out(&demand, &mapping)};
    struct passes passes = state.work;
    passes.kernel = request->workload->name;
    passes.amount = "elements";
    passes.isa = stream_isa;
    passes.warmup = request->warmup_passes;
    passes.set_up = set_up;
    passes.print_about = print_about;
    passes.run = run;
    passes.check = check;
    passes.self = &state;
    struct team team = {
        .cpus = request->cpus,
        .course = &request->course,
        .mappings = &mapping,
        .mapping_count = 1,
    };
    int exit_code = run_rounds(&team, &passes);
    request->workload->release(state.work.self);
    return exit_code;
}

static const struct program program = {
    .name = "chaosity-workload",
    .help = help,
    .isa = stream_isa,
    .options = options,
    .set = set_own_option,
};

int main(int argc, char *argv[]) {
    struct request request = {
        .course = {.sample_seconds = 0.02, .max_seconds = 10},
        .warmup_passes = 1,
    };
    begin_program(argc, argv, &program, &request.course, &request);
    if (request.workload == NULL || request.cpus.count == 0 || request.bytes == 0)
        refuse("--kernel, --cpus and --bytes (above 0) are needed, see --help");
    require_allowed_cpus(request.cpus);
    int exit_code = run_workload(&request);
    free_index_list(request.cpus);
    free_index_list(request.course.placement.nodes);
    return exit_code;
}
