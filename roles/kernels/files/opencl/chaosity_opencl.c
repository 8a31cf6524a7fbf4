/* SPDX-License-Identifier: Apache-2.0
 *
 * chaosity-opencl measures the memory bandwidth of an OpenCL device with the multiply-add that
 * document 000 runs on a GPU (section 4): 3 reads and 1 write of matrices of 8192 x 8192 32-bit
 * floats, 1 GiB in all.
 *
 * A sample consists of a number of passes that takes about --sample-seconds. The device gets all
 * passes of a sample at once, so it does not wait for the host between passes. Time is measured on
 * the host, from the request of the first pass to the end of the last pass; samples follow without
 * gaps.
 */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/command_line.h"
#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "common/run_options.h"
#include "common/start_line_and_signals.h"
#include "opencl/matrix_passes.h"
#include "opencl/opencl_device.h"

static struct {
    struct opencl_choice choice;
    bool list;
    uint64_t elements;
    struct run_options run_options;
} options = {
    .elements = 8192 * 8192,
    .run_options = {.sample_seconds = 0.05, .max_seconds = 10},
};

static const struct command_option command_options[] = {
    OPENCL_OPTIONS(options.choice),
    {"--list", NULL, "print all devices with their facts as JSON, and measure nothing", set_flag,
     &options.list},
    {"--elements", "N",
     "floats of each of the four matrices, a multiple of 4 (default 67108864: 8192 x 8192)",
     set_count, &options.elements},
    RUN_OPTIONS(options.run_options,
                "duration of a sample, rounded to whole passes (default 0.05)"),
};

/* Runs passes until caches and the clock of the device have warmed up, and returns the number of
 * passes that takes as long as a sample. */
static uint64_t choose_passes_per_sample(struct matrices *matrices, double sample_seconds) {
    run_passes(matrices, 1); /* in the first pass, the driver may still compile the kernel */
    for (uint64_t count = 1;; count *= 2) {
        uint64_t began = monotonic_ns();
        run_passes(matrices, count);
        double seconds = (double)(monotonic_ns() - began) * 1e-9;
        if (seconds >= sample_seconds / 2 || stop_requested())
            return (uint64_t)fmax(1, round((double)count * sample_seconds / seconds));
    }
}

static void print_ready(const struct matrices *matrices, uint64_t passes_per_sample) {
    printf("{\"event\":\"ready\",");
    print_opencl_device(matrices->device);
    printf("\"elements\":%" PRIu64 ",\"bytes_per_pass\":%" PRIu64 ",\"passes_per_sample\":%" PRIu64
           ",",
           options.elements, bytes_per_pass(matrices), passes_per_sample);
    print_run_options(&options.run_options);
    print_build();
    require_written();
}

static const char *take_samples(struct matrices *matrices, uint64_t passes_per_sample) {
    uint64_t now = monotonic_ns();
    uint64_t limit_ns = now + (uint64_t)(options.run_options.max_seconds * 1e9);
    while (now < limit_ns && !stop_requested()) {
        uint64_t began = now;
        run_passes(matrices, passes_per_sample);
        now = monotonic_ns();
        printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64
               ",\"bytes\":%" PRIu64 "}\n",
               began, now, passes_per_sample * bytes_per_pass(matrices));
        require_written();
    }
    return stop_requested() ? "signal" : "time";
}

static int print_done(const struct matrices *matrices, const char *stopped_by, bool ran) {
    uint64_t wrong = wrong_elements(matrices);
    printf("{\"event\":\"done\",\"valid\":%s,\"passes\":%" PRIu64 ",\"wrong_elements\":%" PRIu64
           ",\"stopped_by\":\"%s\"}\n",
           !ran         ? "null"
           : wrong == 0 ? "true"
                        : "false",
           matrices->passes, wrong, stopped_by);
    require_written();
    if (!ran || wrong == 0)
        return EXIT_VALID;
    complain("%" PRIu64 " elements are wrong; the numbers must not be used", wrong);
    return EXIT_INVALID;
}

static int run(void) {
    if (options.list) {
        print_opencl_devices();
        return EXIT_VALID;
    }
    if (options.elements == 0 || options.elements % VECTOR != 0 || options.elements > MOST_BYTES)
        refuse("--elements takes a multiple of %d above 0, not %" PRIu64, VECTOR, options.elements);
    struct opencl_device device = open_opencl_device(&options.choice, matrix_kernels);
    struct matrices matrices = new_matrices(&device, options.elements);
    deliver_stop_signals();
    uint64_t passes = choose_passes_per_sample(&matrices, options.run_options.sample_seconds);
    enum start start = START_STOPPED;
    if (!stop_requested()) {
        print_ready(&matrices, passes);
        start = options.run_options.wait_for_start ? wait_for_start() : START_GO;
    }
    const char *stopped_by = stopped_by_start(start);
    if (start == START_GO)
        stopped_by = take_samples(&matrices, passes);
    int exit_code = print_done(&matrices, stopped_by, start == START_GO);
    free_matrices(&matrices);
    close_opencl_device(&device);
    return exit_code;
}

const struct program program = {
    .name = "chaosity-opencl",
    .usage = "[OPTION]...",
    .summary = "Measures the memory bandwidth of an OpenCL device: 3 matrices read, 1 written.",
    .options = command_options,
    .notes = "SIGTERM or SIGINT ends the measurement after the current sample; then all elements "
             "are checked. Prints JSON lines: one \"ready\", many \"sample\" (bytes moved between "
             "two readings of CLOCK_MONOTONIC, in nanoseconds; 16 bytes for each element of a "
             "pass), one \"done\". Exit code: 0 right result, 1 wrong result, 2 refused.",
    .example = "the GPU in a PCI slot, for 2 seconds\n"
               "  chaosity-opencl --slot 0000:41:00.0 --max-seconds 2",
    .run = run,
};
