/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/stream_options.h"

#include <string.h>

#include "common/errors.h"
#include "streams/stream_arrays.h"

const struct stream *find_stream(const char *name) {
    for (int i = 0; i < stream_count; i++) {
        if (strcmp(streams[i].name, name) != 0)
            continue;
        if (streams[i].run[0] == NULL)
            refuse("the kernel %s is not offered: this CPU has no non-temporal store", name);
        return &streams[i];
    }
    refuse("unknown kernel '%s'; --list prints all kernels", name);
}

void require_stream_options(const struct stream_options *options) {
    if (options->stream == NULL || options->cpus.count == 0 || options->array_bytes == 0)
        refuse("--kernel, --cpus and --array-bytes (above 0) are needed, see --help");
    require_array_bytes("--array-bytes", options->array_bytes, options->cpus.count);
}

void free_stream_options(struct stream_options options) {
    free_index_list(options.cpus);
    free_index_list(options.run_options.placement.nodes);
}
