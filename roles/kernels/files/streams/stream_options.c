/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/stream_options.h"

#include <string.h>

#include "streams/stream_arrays.h"
#include "common/process.h"

bool set_job_option(struct job *job, int option, const char *text) {
    switch (option) {
    case CPUS: job->cpus = parse_index_list("--cpus", text, MOST_CPUS); return true;
    case ARRAY_BYTES:
        job->array_bytes = parse_count("--array-bytes", text, MOST_BYTES);
        return true;
    default: return false;
    }
}

const struct stream *find_stream(const char *name) {
    for (int i = 0; i < stream_count; i++) {
        if (strcmp(streams[i].name, name) != 0)
            continue;
        if (streams[i].run == NULL)
            refuse("the kernel %s is not offered: the instruction set this was built for (%s) "
                   "has no non-temporal store",
                   name, stream_isa);
        return &streams[i];
    }
    refuse("there is no kernel '%s', --list prints those there are", name);
}

void require_job(const struct job *job) {
    if (job->stream == NULL || job->cpus.count == 0 || job->array_bytes == 0)
        refuse("--kernel, --cpus and --array-bytes (above 0) are needed, see --help");
    require_array_bytes("--array-bytes", job->array_bytes, job->cpus.count);
}

void free_job(struct job job) {
    free_index_list(job.cpus);
    free_index_list(job.course.placement.nodes);
}
