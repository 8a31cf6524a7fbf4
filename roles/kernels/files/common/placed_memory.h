/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory with a requested page size on requested NUMA nodes.
 */
#ifndef CHAOSITY_PLACED_MEMORY_H
#define CHAOSITY_PLACED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cpu_lists_and_pinning.h"

enum page_kind { PAGES_BASE, PAGES_THP, PAGES_2M, PAGES_1G };

/* Reads base, thp, 2M or 1G; any other text ends the process with an error that names the
 * option. */
enum page_kind parse_page_kind(const char *option, const char *text);
const char *page_kind_name(enum page_kind kind);
/* Returns the bytes of a page. Ends the process with an error if the kernel lacks transparent huge
 * pages and they are requested. */
size_t page_bytes_of(enum page_kind pages);

struct placement {
    enum page_kind pages;
    /* Count 0: the memory is not bound; a page lies on the node that first touches it. */
    struct index_list nodes;
    /* Puts pages on the nodes in turn, instead of filling one node after another. */
    bool interleave;
};

/* Name of the policy: default, bind or interleave. */
const char *policy_name(const struct placement *placement);

struct mapping {
    char *start;
    size_t bytes;      /* a multiple of page_bytes, at least the requested bytes */
    size_t page_bytes; /* size of a page of the requested kind: 4 KiB, 2 MiB, ... */
    enum page_kind pages;
};

/* Maps memory, sets its page size and policy before any page exists, and reads the policy back from
 * the kernel. Touches no page, because the threads touch the pages. If the machine cannot provide
 * the size or the placement, the process ends with an error. */
struct mapping map_memory(size_t bytes, struct placement placement);

/* Returns `bytes`, rounded up to a multiple of base pages, so that the next array begins on a new
 * page. */
size_t whole_pages(size_t bytes);

/* Describes `count` elements of an array in a mapping, from element `from` on. */
struct array_slice {
    void *array;
    size_t element_bytes, from, count;
};

/* Writes the contents of `count` elements, from element `from` on. */
typedef void fill_function(void *context, size_t from, size_t count);

/* Creates the pages of a slice and fills the pages, piece by piece, by calls of fill(context, from,
 * count). The calling thread is the first to touch the pages. The function returns early after a
 * stop signal. */
void fill_slice(const struct mapping *mapping, struct array_slice slice, fill_function *fill,
                void *context);

/* Returns the bytes of the mapping that lie in huge pages; call this function after all pages were
 * touched. If huge pages were requested and a part lies in base pages, the process ends with an
 * error, since a mixture measures neither kind of pages. */
uint64_t huge_page_bytes(const struct mapping *mapping);

/* Prints fields of the ready line, with a comma after the last: nodes, policy, addresses and pages.
 * If there are several mappings, which all have the same kind of pages, the addresses are a
 * list. */
void print_placement(const struct placement *placement, const struct mapping *mappings, int count,
                     uint64_t in_huge_pages);

#endif
