/* SPDX-License-Identifier: Apache-2.0 */
#include "latency/latency_options.h"

#include "common/cpu_lists_and_pinning.h"
#include "common/errors.h"
#include "common/parse_numbers.h"

/* A line is large enough for an address and for other data. */
static const size_t least_line_bytes = 16;

void set_cpu(void *target, const char *option, const char *text) {
    *(int *)target = (int)parse_count(option, text, MOST_CPUS - 1);
}

void set_line_bytes(void *target, const char *option, const char *text) {
    size_t bytes = parse_count(option, text, MOST_BYTES);
    if (bytes < least_line_bytes || (bytes & (bytes - 1)) != 0)
        refuse("%s must be a power of two and at least %zu, not %zu", option, least_line_bytes,
               bytes);
    *(size_t *)target = bytes;
}
