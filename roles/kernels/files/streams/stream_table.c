/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/instruction_sets.h"
#include "streams/stream_kernels.h"

#define DECLARED(isa, name) stream_function name##_##isa;
#define DECLARE(name) EACH_ISA(DECLARED, name)
DECLARE(read) DECLARE(fill) DECLARE(copy) DECLARE(scale) DECLARE(add) DECLARE(triad)

#if HAVE_NON_TEMPORAL
DECLARE(fill_nt) DECLARE(copy_nt) DECLARE(scale_nt) DECLARE(add_nt) DECLARE(triad_nt)
#define OFFERED_NT(name) OF_EACH_ISA(name)
#else
#define OFFERED_NT(name) {NULL}
#endif

const struct stream streams[] = {
    {"read", READ, 1, false, OF_EACH_ISA(read)},    /* sum += a[i] */
    {"fill", FILL, 1, false, OF_EACH_ISA(fill)},    /* a[i] = s */
    {"copy", COPY, 2, false, OF_EACH_ISA(copy)},    /* a[i] = b[i] */
    {"scale", SCALE, 2, false, OF_EACH_ISA(scale)}, /* a[i] = s * b[i] */
    {"add", ADD, 3, false, OF_EACH_ISA(add)},       /* a[i] = b[i] + c[i] */
    {"triad", TRIAD, 3, false, OF_EACH_ISA(triad)}, /* a[i] = b[i] + s * c[i] */
    {"fill_nt", FILL, 1, true, OFFERED_NT(fill_nt)},
    {"copy_nt", COPY, 2, true, OFFERED_NT(copy_nt)},
    {"scale_nt", SCALE, 2, true, OFFERED_NT(scale_nt)},
    {"add_nt", ADD, 3, true, OFFERED_NT(add_nt)},
    {"triad_nt", TRIAD, 3, true, OFFERED_NT(triad_nt)},
};
const int stream_count = sizeof streams / sizeof streams[0];

void drain_stores(void) {
#if HAVE_NON_TEMPORAL && defined __x86_64__
    __builtin_ia32_sfence();
#elif HAVE_NON_TEMPORAL
    __asm__ volatile("dmb ishst" : : : "memory");
#endif
}
