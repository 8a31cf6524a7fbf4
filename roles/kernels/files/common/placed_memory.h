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

/* Reads base, thp, 2M or 1G; refuses any other text and names the option. */
enum page_kind parse_page_kind(const char *option, const char *text);
const char *page_kind_name(enum page_kind kind);
/* Bytes of a page. Refuses transparent huge pages on a kernel without them. */
size_t page_bytes_of(enum page_kind pages);

struct placement {
    enum page_kind pages;
    struct index_list nodes; /* count 0: not bound, a page lies where it is first touched */
    bool interleave;         /* pages in turn over the nodes, instead of filling them one by one */
};

const char *policy_name(const struct placement *placement); /* default, bind or interleave */

struct mapping {
    char *start;
    size_t bytes;      /* a multiple of page_bytes, at least what was requested */
    size_t page_bytes; /* of the requested kind of pages: 4 KiB, 2 MiB, ... */
    enum page_kind pages;
};

/* Maps memory, sets its page size and policy before any page exists, and reads the policy back from
 * the kernel. Touches no page: the threads do that. Refuses a size or a placement that the machine
 * cannot provide. */
struct mapping map_memory(size_t bytes, struct placement placement);

/* `bytes` rounded up to whole base pages, so that the next array begins on a page of its own. */
size_t whole_pages(size_t bytes);

/* `count` elements of an array in a mapping, from element `from` on. */
struct array_slice {
    void *array;
    size_t element_bytes, from, count;
};

/* Writes `count` elements from `from` on. */
typedef void fill_function(void *context, size_t from, size_t count);

/* Creates the pages of a slice and fills them, piece by piece, by calling fill(context, from,
 * count). The calling thread is the first to touch the pages. Returns early after a stop signal. */
void fill_slice(const struct mapping *mapping, struct array_slice slice, fill_function *fill,
                void *context);

/* Bytes of the mapping that lie in huge pages; call it when all pages were touched. Refuses when
 * huge pages were requested and a part lies in base pages, since a mixture measures neither. */
uint64_t huge_page_bytes(const struct mapping *mapping);

/* Prints fields of the ready line, with a comma after the last: nodes, policy, addresses and pages.
 * Several mappings, all with the same kind of pages, become a list of addresses. */
void print_placement(const struct placement *placement, const struct mapping *mappings, int count,
                     uint64_t in_huge_pages);

#endif
