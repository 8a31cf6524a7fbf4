/* SPDX-License-Identifier: Apache-2.0
 *
 * A barrier at which threads only spin, since each thread has its own PU. The barrier of OpenMP may
 * put a thread to sleep (libgomp does so after a while, or at once if it believes that the machine
 * has more threads than PUs). Waking a thread takes tens of microseconds, which would count as time
 * of accesses to memory.
 */
#ifndef CHAOSITY_SPIN_BARRIER_H
#define CHAOSITY_SPIN_BARRIER_H

#include <stdatomic.h>

/* Distance in bytes between data of different threads. x86 processors fetch cache lines of 64 bytes
 * in pairs, and some arm64 and POWER processors have lines of 128 bytes. */
enum { PADDING_BYTES = 128 };

struct spin_barrier {
    _Alignas(PADDING_BYTES) atomic_uint waiting;
    /* Number of the present round, which waiting threads read. */
    _Alignas(PADDING_BYTES) atomic_uint round;
    unsigned threads;
};

static inline void spin_pause(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb"); /* `yield` does nothing on most cores; isb waits a little */
#endif
}

static inline void spin_barrier_wait(struct spin_barrier *barrier) {
    unsigned round = atomic_load_explicit(&barrier->round, memory_order_relaxed);
    unsigned before = atomic_fetch_add_explicit(&barrier->waiting, 1, memory_order_acq_rel);
    if (before + 1 == barrier->threads) { /* the last thread opens the barrier */
        atomic_store_explicit(&barrier->waiting, 0, memory_order_relaxed);
        atomic_store_explicit(&barrier->round, round + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&barrier->round, memory_order_acquire) == round)
        spin_pause();
}

#endif
