/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/bandwidth_run.h"

#include <inttypes.h>
#include <stdio.h>

#include "streams/array_validation.h"
#include "streams/thread_team.h"

static void set_up(void *self, int index) { touch_part(self, index); }

static uint64_t bytes_per_pass(const struct arrays *arrays) {
    return (uint64_t)arrays->stream->arrays * arrays->bytes;
}

static void print_details(const void *self) {
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

struct passes passes_over(struct arrays *arrays) {
    return (struct passes){
        .kernel = arrays->stream->name,
        .amount = "bytes",
        .amount_per_pass = bytes_per_pass(arrays),
        .set_up = set_up,
        .print_details = print_details,
        .run = run,
        .check = check,
        .arrays = arrays,
        .self = arrays,
    };
}

int run_bandwidth(const struct bandwidth_options *options) {
    const struct stream_options *stream_options = &options->stream_options;
    struct arrays arrays = {
        .stream = stream_options->stream,
        .bytes = stream_options->array_bytes,
        .threads = stream_options->cpus.count,
    };
    map_arrays(&arrays, stream_options->run_options.placement);
    struct team team = {
        .cpus = stream_options->cpus,
        .run_options = &stream_options->run_options,
        .mappings = &arrays.mapping,
        .mapping_count = 1,
    };
    struct passes work = passes_over(&arrays);
    work.warmup = options->warmup_passes;
    int exit_code = run_timed_passes(&team, &work);
    free_arrays(&arrays);
    return exit_code;
}
