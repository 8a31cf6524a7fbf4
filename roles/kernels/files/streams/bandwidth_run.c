/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/bandwidth_run.h"

#include <inttypes.h>
#include <stdio.h>

#include "streams/validation.h"
#include "streams/thread_team.h"

static void set_up(void *self, int index) { touch_part(self, index); }

static uint64_t bytes_per_pass(const struct arrays *arrays) {
    return (uint64_t)arrays->stream->arrays * arrays->bytes;
}

static void print_about(const void *self) {
    const struct arrays *arrays = self;
    printf("\"arrays\":%d,\"array_bytes\":%zu,\"bytes_per_pass\":%" PRIu64 ",",
           arrays->stream->arrays, arrays->bytes, bytes_per_pass(arrays));
}

static void run(void *self, int index, uint64_t pass, struct verdict *verdict) {
    const struct arrays *arrays = self;
    run_pass(arrays->stream, &arrays->parts[index], pass, verdict);
}

static void check(void *self, int index, uint64_t passes, struct verdict *verdict) {
    const struct arrays *arrays = self;
    check_contents(arrays->stream, &arrays->parts[index], passes, verdict);
}

struct passes passes_of(struct arrays *arrays) {
    return (struct passes){
        .kernel = arrays->stream->name,
        .isa = stream_isa,
        .amount = "bytes",
        .amount_per_pass = bytes_per_pass(arrays),
        .set_up = set_up,
        .print_about = print_about,
        .run = run,
        .check = check,
        .self = arrays,
    };
}

int measure(const struct request *request) {
    const struct job *job = &request->job;
    struct arrays arrays = {
        .stream = job->stream,
        .bytes = job->array_bytes,
        .threads = job->cpus.count,
    };
    map_arrays(&arrays, job->course.placement);
    struct team team = {
        .cpus = job->cpus,
        .course = &job->course,
        .mappings = &arrays.mapping,
        .mapping_count = 1,
    };
    struct passes work = passes_of(&arrays);
    work.warmup = request->warmup_passes;
    int exit_code = run_rounds(&team, &work);
    free_arrays(&arrays);
    return exit_code;
}
