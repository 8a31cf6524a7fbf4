/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/instruction_sets.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"
#include "common/monotonic_clock.h"

#if defined __aarch64__
#include <sys/auxv.h>
#include <sys/prctl.h>

#include "streams/stream_kernels.h"

/* Returns whether this CPU has SVE with vectors of 16, 32 or 64 bytes. These lengths divide a cache
 * line, so that a part of an array consists of complete vectors. All SVE processors of today have
 * one of these lengths. */
static bool cpu_has_sve(void) {
    return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 &&
           LINE_BYTES % (prctl(PR_SVE_GET_VL) & PR_SVE_VL_LEN_MASK) == 0;
}
#endif

/* Number of turns of each instruction set in the trial. With three instruction sets, a turn takes 2
 * ms, since some CPUs keep a lower clock for 0.7 ms after AVX-512. */
enum { TURNS = 8 };

/* A wider instruction set is chosen if it is slower by less than this share, so that noise seldom
 * changes the choice between equally fast instruction sets from run to run. */
static const double equal_share = 0.02;

#define ISA_TEXT(isa, argument) #isa,
static const char *const names[] = {EACH_ISA(ISA_TEXT, )};
static bool fixed;
static double rates[ISAS]; /* bytes per second in the trial; 0: no trial */
int chosen_isa;

/* Returns whether this CPU has the features that FLAGS_* of the Makefile enable for an instruction
 * set. */
static bool cpu_has(int isa) {
#if defined __x86_64__
    if (isa == ISA_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
    if (isa == ISA_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#elif defined __aarch64__
    if (isa == ISA_sve)
        return cpu_has_sve();
#endif
    return isa == ISAS - 1;
}

__attribute__((constructor)) static void choose_widest(void) {
    while (!cpu_has(chosen_isa))
        chosen_isa++;
}

const char *chosen_isa_name(void) { return names[chosen_isa]; }

void set_isa(void *target, const char *option, const char *text) {
    (void)target;
    char available[64] = "";
    fixed = false;
    for (int i = 0; i < ISAS && !fixed; i++) {
        if (!cpu_has(i))
            continue;
        fixed = strcmp(names[chosen_isa = i], text) == 0;
        strcat(strcat(available, available[0] == '\0' ? "" : ", "), names[i]);
    }
    if (!fixed)
        refuse("%s %s: this CPU or program does not have it; it has %s", option, text, available);
}

static int compare(const void *left, const void *right) {
    double one = *(const double *)left, other = *(const double *)right;
    return (one > other) - (one < other);
}

uint64_t choose_isa(uint64_t (*run)(void *self, uint64_t step), void *self, double seconds) {
    double turns[ISAS][TURNS];
    uint64_t step = 0;
    if (fixed || chosen_isa == ISAS - 1)
        return 0;
    const uint64_t turn_ns = (uint64_t)(seconds * 1e9 / (ISAS - chosen_isa) / TURNS);
    for (int turn = 0; turn < TURNS; turn++)
        for (chosen_isa = 0; chosen_isa < ISAS; chosen_isa++) {
            if (!cpu_has(chosen_isa))
                continue;
            uint64_t bytes = 0, begin_ns = monotonic_ns(), now = begin_ns;
            for (; now - begin_ns < turn_ns || bytes == 0; now = monotonic_ns())
                bytes += run(self, step++);
            turns[chosen_isa][turn] = (double)bytes / (double)(now - begin_ns) * 1e9;
        }
    chosen_isa = -1;
    for (int i = 0; i < ISAS; i++) {
        if (!cpu_has(i))
            continue;
        qsort(turns[i], TURNS, sizeof(double), compare);
        rates[i] = turns[i][TURNS / 2];
        if (chosen_isa < 0 || rates[i] * (1 - equal_share) > rates[chosen_isa])
            chosen_isa = i;
    }
    return step;
}

void print_isa_trial(void) {
    const char *before = "{";
    printf("\"isa_trial\":%s", rates[chosen_isa] > 0 ? "" : "null,");
    for (int i = 0; i < ISAS; before = rates[i] > 0 ? "," : before, i++)
        if (rates[i] > 0)
            printf("%s\"%s\":%.0f", before, names[i], rates[i]);
    printf("%s", rates[chosen_isa] > 0 ? "}," : "");
}
