/* SPDX-License-Identifier: Apache-2.0 */
#include "common/run_options.h"

#include <stdio.h>

#include "common/monotonic_clock.h"


void print_run_options(const struct run_options *run) {
    printf("\"sample_seconds\":%g,\"max_seconds\":%g,", run->sample_seconds, run->max_seconds);
}

void print_build(void) {
    printf("\"setup_seconds\":%.6f,\"version\":\"%s\",\"compiler\":\"%s\"",
           (double)(monotonic_ns() - program_started_ns) * 1e-9, program_version, compiler_version);
    const char *isa = program.instruction_set != NULL ? program.instruction_set() : NULL;
    if (isa != NULL)
        printf(",\"isa\":\"%s\"", isa);
    printf("}\n");
}
