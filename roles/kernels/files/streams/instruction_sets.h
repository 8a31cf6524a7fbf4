/* SPDX-License-Identifier: Apache-2.0
 *
 * The instruction sets for which the inner loops are compiled, and the choice among them at run
 * time, so that one program serves CPUs of different generations. A loop `name` is compiled once
 * per instruction set (see the Makefile), as the function name_ISA, such as fill_avx2; its source
 * contains OF_THIS_ISA(name).
 */
#ifndef CHAOSITY_INSTRUCTION_SETS_H
#define CHAOSITY_INSTRUCTION_SETS_H

#include <stdint.h>

#include "common/command_line.h"

/* Expands to X(name, argument) for each instruction set, the widest first. The last one is the
 * baseline, which each CPU has. ISAS of the Makefile lists the same instruction sets. */
#if defined __x86_64__
#define EACH_ISA(X, argument) X(avx512, argument) X(avx2, argument) X(sse2, argument)
#elif defined __aarch64__
#define EACH_ISA(X, argument) X(sve, argument) X(neon, argument)
#else
#define EACH_ISA(X, argument) X(generic, argument)
#endif

/* Only for tests. */
#if (defined __x86_64__ || defined __aarch64__) && !defined WITHOUT_NON_TEMPORAL
#define HAVE_NON_TEMPORAL 1
#else
#define HAVE_NON_TEMPORAL 0
#endif

#define ISA_NUMBER(isa, argument) ISA_##isa,
enum { EACH_ISA(ISA_NUMBER, ) ISAS };

#define ISA_NAME_OF(name, isa) name##_##isa
#define ISA_NAME(name, isa) ISA_NAME_OF(name, isa)
#define OF_THIS_ISA(name) ISA_NAME(name, ISA)
/* Initialiser of an array that contains the function of each instruction set, by its number. */
#define ISA_FUNCTION(isa, name) name##_##isa,
#define OF_EACH_ISA(name) {EACH_ISA(ISA_FUNCTION, name)}

/* Number of the instruction set whose loops run; at first, it is the widest one that this CPU
 * has. */
extern int chosen_isa;
const char *chosen_isa_name(void);

/* Row of a table of options. */
/* clang-format off */
#define ISA_OPTION \
    {"--isa", "NAME", \
     "the instruction set of the loops (default: the fastest of those that this CPU has, in a " \
     "trial of 50 ms before the ready line, or of a tenth of --max-seconds if that is shorter)", \
     set_isa, NULL}
/* clang-format on */
option_setter set_isa; /* ends the process for an unknown name, and for a set that this CPU lacks */

/* Chooses the fastest instruction set, unless --isa chose one or only one exists. `run(self, step)`
 * runs a piece of some microseconds with chosen_isa and returns the bytes of the piece; steps count
 * from 0. The instruction sets run in turn, for `seconds` in total. Returns the number of steps. */
uint64_t choose_isa(uint64_t (*run)(void *self, uint64_t step), void *self, double seconds);

/* Prints a field of the ready line, with a comma: the bytes per second of each instruction set in
 * the trial, or null without a trial. */
void print_isa_trial(void);

#endif
