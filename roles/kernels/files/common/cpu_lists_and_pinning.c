/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/cpu_lists_and_pinning.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"

/* The type cpu_set_t of glibc ends at CPU 1023; the macros with _S and the system calls take larger
 * sets. */
typedef struct {
    cpu_set_t part[MOST_CPUS / CPU_SETSIZE];
} large_cpu_set;

static int parse_index(const char **text) {
    if (!isdigit((unsigned char)**text))
        return -1;
    char *end;
    unsigned long value = strtoul(*text, &end, 10);
    *text = end;
    return value < 1000000 ? (int)value : 1000000; /* a number above the limits of all options */
}

struct index_list parse_index_list(const char *option, const char *text, int limit) {
    struct index_list list = {.index = calloc((size_t)limit, sizeof(int))};
    bool *seen = calloc((size_t)limit, sizeof(bool));
    if (list.index == NULL || seen == NULL)
        refuse("out of memory while reading %s", option);
    const char *rest = text;
    for (;;) {
        int first = parse_index(&rest), last = first;
        if (first >= 0 && *rest == '-') {
            rest++;
            last = parse_index(&rest);
        }
        if (first < 0 || last < first || (*rest != ',' && *rest != '\0'))
            refuse("%s takes a list such as 0-3,8, not '%s'", option, text);
        if (last >= limit)
            refuse("%s: '%s' is above %d, the highest possible index", option, text, limit - 1);
        for (int index = first; index <= last; index++) {
            if (seen[index])
                refuse("%s names %d twice: '%s'", option, index, text);
            seen[index] = true;
            list.index[list.count++] = index;
        }
        if (*rest++ == '\0')
            break;
    }
    free(seen);
    return list;
}

void free_index_list(struct index_list list) { free(list.index); }

void format_index_list(struct index_list list, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list.count && used < bytes;) {
        int first = list.index[i], last = first;
        for (i++; i < list.count && list.index[i] == last + 1; i++)
            last++;
        const char *comma = used > 0 ? "," : "";
        int more = first == last
                       ? snprintf(text + used, bytes - used, "%s%d", comma, first)
                       : snprintf(text + used, bytes - used, "%s%d-%d", comma, first, last);
        used += (size_t)more;
    }
}

static void allowed_cpus(large_cpu_set *allowed) {
    memset(allowed, 0, sizeof *allowed);
    if (sched_getaffinity(0, sizeof *allowed, allowed->part) != 0)
        refuse("the affinity of this process cannot be read: %s", strerror(errno));
}

void require_allowed_cpus(struct index_list cpus) {
    large_cpu_set allowed;
    allowed_cpus(&allowed);
    for (int i = 0; i < cpus.count; i++) {
        if (CPU_ISSET_S((size_t)cpus.index[i], sizeof allowed, allowed.part))
            continue;
        int indexes[MOST_CPUS];
        struct index_list usable = {.index = indexes};
        for (int cpu = 0; cpu < MOST_CPUS; cpu++)
            if (CPU_ISSET_S((size_t)cpu, sizeof allowed, allowed.part))
                indexes[usable.count++] = cpu;
        char text[256];
        format_index_list(usable, text, sizeof text);
        refuse("this process may not run on CPU %d; allowed CPUs: %s", cpus.index[i], text);
    }
}

int pin_to_cpu(int cpu) {
    large_cpu_set wanted, got;
    memset(&wanted, 0, sizeof wanted);
    CPU_SET_S((size_t)cpu, sizeof wanted, wanted.part);
    if (sched_setaffinity(0, sizeof wanted, wanted.part) != 0)
        refuse("a thread cannot be pinned to CPU %d: %s", cpu, strerror(errno));
    allowed_cpus(&got);
    int here = sched_getcpu();
    if (!CPU_EQUAL_S(sizeof wanted, wanted.part, got.part) || here != cpu)
        refuse("a thread that was pinned to CPU %d runs on CPU %d", cpu, here);
    return here;
}
