/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of indexes as Linux writes them ("0-3,8"), and pinning threads to CPUs (Linux's word for
 * processing units).
 */
#ifndef CHAOSITY_CPU_LISTS_H
#define CHAOSITY_CPU_LISTS_H

#include <stddef.h>

/* The Linux constant NR_CPUS is at most 8192 on x86-64 and 4096 on arm64; MAX_NUMNODES is at most
 * 1024 on both (Linux 6.18, arch/.../Kconfig). */
enum { MOST_CPUS = 8192, MOST_NODES = 1024 };

struct index_list {
    int *index; /* in the order of the text; the first CPU runs the first thread */
    int count;
};

/* Reads a list such as "0-3,8". The process ends with an error that names the option if the text is
 * no list or empty, if an index occurs twice, or if an index is not below `limit`. */
struct index_list parse_index_list(const char *option, const char *text, int limit);
void free_index_list(struct index_list list);

/* Writes a list in the form of parse_index_list() into `text`, cut off if it exceeds `bytes`. */
void format_index_list(struct index_list list, char *text, size_t bytes);

/* Ends the process with an error if the process may not run on one of the CPUs, because of taskset
 * or a cpuset, or because the CPU is offline. */
void require_allowed_cpus(struct index_list cpus);

/* Pins the calling thread to a CPU, reads from the kernel on which CPU the thread runs, and returns
 * this CPU. If the thread runs on another CPU, the process ends with an error. */
int pin_to_cpu(int cpu);

#endif
