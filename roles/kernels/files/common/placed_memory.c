/* SPDX-License-Identifier: Apache-2.0
 *
 * The NUMA system calls are used directly. The library libnuma would have to be installed, and
 * prints warnings and continues in cases in which a benchmark must stop.
 */
#define _GNU_SOURCE
#include "common/placed_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/errors.h"
#include "common/parse_numbers.h"
#include "common/start_line_and_signals.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* from Linux 5.14; older C libraries lack this constant */
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

/* Size in bytes of the pieces in which pages are created and filled. A piece is so small that it is
 * still in the L2 cache after the kernel zeroed it, when its contents are written. */
enum { SETUP_PIECE_BYTES = 256 * 1024 };

#if defined WITHOUT_BINDING /* only for tests: the program behaves as if every node existed */
#define BINDS false
#else
#define BINDS true
#endif

enum { LONG_BITS = 8 * sizeof(unsigned long), MASK_LONGS = MOST_NODES / LONG_BITS };

struct node_mask {
    unsigned long part[MASK_LONGS];
};

static const struct {
    const char *name;
    int log2_bytes; /* for MAP_HUGETLB */
} page_kinds[] = {
    [PAGES_BASE] = {"base", 0},
    [PAGES_THP] = {"thp", 0},
    [PAGES_2M] = {"2M", 21},
    [PAGES_1G] = {"1G", 30},
};

enum page_kind parse_page_kind(const char *option, const char *text) {
    for (int kind = PAGES_BASE; kind <= PAGES_1G; kind++)
        if (strcmp(text, page_kinds[kind].name) == 0)
            return (enum page_kind)kind;
    refuse("%s takes base, thp, 2M or 1G, not '%s'", option, text);
}

const char *page_kind_name(enum page_kind kind) { return page_kinds[kind].name; }

const char *policy_name(const struct placement *placement) {
    if (placement->nodes.count == 0)
        return "default";
    return placement->interleave ? "interleave" : "bind";
}

static bool reserved_pages(enum page_kind pages) { return page_kinds[pages].log2_bytes > 0; }

size_t page_bytes_of(enum page_kind pages) {
    if (reserved_pages(pages))
        return (size_t)1 << page_kinds[pages].log2_bytes;
    if (pages == PAGES_BASE)
        return (size_t)sysconf(_SC_PAGESIZE);
    /* size of a huge page: 2 MiB on x86-64; 2, 32 or 512 MiB on arm64, depending on base pages */
    int64_t bytes = kernel_number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "");
    if (bytes <= 0)
        refuse("--pages thp: this kernel has no transparent huge pages");
    return (size_t)bytes;
}

/* Returns an upper limit in KiB of the memory that some nodes can give; -1 if the limit is
 * unknown. */
static int64_t free_kib_of(struct index_list nodes, const char *list) {
    char all[256] = "";
    FILE *file = fopen("/sys/devices/system/node/has_memory", "re");
    if (file != NULL) {
        if (fgets(all, sizeof all, file) != NULL)
            all[strcspn(all, "\n")] = '\0';
        fclose(file);
    }
    /* For all nodes together, the free memory of the machine is used. A kernel that initialises
     * memory only when it is needed counts the remaining memory only for the machine, and not for
     * its nodes. */
    if (nodes.count == 0 || strcmp(all, list) == 0)
        return kernel_number("/proc/meminfo", "MemAvailable:");
    int64_t free_kib = 0;
    for (int i = 0; i < nodes.count; i++) {
        char path[80];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/meminfo", nodes.index[i]);
        int64_t unused = kernel_number(path, "MemFree:");
        int64_t cached = kernel_number(path, "FilePages:");
        if (unused < 0 || cached < 0)
            /* The node or the file is missing; mbind() will report a missing node. */
            return -1;
        /* File caches count as free, because the kernel drops them when memory is needed. */
        free_kib += unused + cached;
    }
    return free_kib;
}

/* Ends the process with an error if the size certainly does not fit. The kernel would only notice
 * this when the pages are touched, and would then kill processes, perhaps not this one. */
static void require_free_memory(size_t bytes, struct index_list nodes) {
    char list[256];
    format_index_list(nodes, list, sizeof list);
    int64_t free_kib = free_kib_of(nodes, list);
    if (free_kib < 0 || bytes / 1024 <= (uint64_t)free_kib)
        return;
    refuse("%zu MiB are needed and %s%s can give %" PRId64 " MiB", bytes >> 20,
           nodes.count > 0 ? "memory nodes " : "this machine", list, free_kib >> 10);
}

/* Returns the number in the file `which` of the pool of huge pages of a node, or of the machine
 * (node -1). */
static int64_t pool_pages(size_t page_bytes, int node, const char *which) {
    char path[160], folder[64] = "/sys/kernel/mm";
    if (node >= 0)
        snprintf(folder, sizeof folder, "/sys/devices/system/node/node%d", node);
    snprintf(path, sizeof path, "%s/hugepages/hugepages-%zukB/%s", folder, page_bytes >> 10, which);
    return kernel_number(path, "");
}

static void require_reserved_pages(size_t bytes, size_t page_bytes, struct placement placement) {
    const char *name = page_kind_name(placement.pages);
    int64_t needed = (int64_t)(bytes / page_bytes), unused = 0;
    for (int i = 0; i < placement.nodes.count; i++) {
        int64_t there = pool_pages(page_bytes, placement.nodes.index[i], "free_hugepages");
        unused += there > 0 ? there : 0;
    }
    if (placement.nodes.count == 0)
        unused = pool_pages(page_bytes, -1, "free_hugepages");
    if (unused < 0)
        refuse("--pages %s: this kernel has no huge pages of that size", name);
    if (unused < needed)
        refuse("--pages %s: %" PRId64 " huge pages are needed and %" PRId64 " are free%s; reserve "
               "them in /sys/kernel/mm/hugepages/hugepages-%zukB/nr_hugepages",
               name, needed, unused, placement.nodes.count > 0 ? " on these memory nodes" : "",
               page_bytes >> 10);
}

static void bind(struct mapping mapping, struct placement placement) {
    struct node_mask wanted = {{0}}, got = {{0}};
    for (int i = 0; i < placement.nodes.count; i++) {
        unsigned node = (unsigned)placement.nodes.index[i];
        wanted.part[node / LONG_BITS] |= 1ul << node % LONG_BITS;
    }
    char list[256];
    format_index_list(placement.nodes, list, sizeof list);
    /* The kernel reads one bit less than maxnode says (mm/mempolicy.c, get_nodes), so maxnode is
     * one larger. */
    unsigned long bits = MOST_NODES + 1;
    int mode = placement.interleave ? MPOL_INTERLEAVE : MPOL_BIND, got_mode = -1;
    if (syscall(SYS_mbind, mapping.start, mapping.bytes, mode, wanted.part, bits, 0u) != 0) {
        if (errno == ENOSYS)
            refuse("--memory-nodes: this kernel cannot place memory on nodes (it has no mbind)");
        if (errno == EINVAL)
            refuse("--memory-nodes: no memory of nodes %s can be used (see has_memory in "
                   "/sys/devices/system/node and Mems_allowed_list in /proc/self/status)",
                   list);
        if (errno == EPERM) /* only a filter of system calls answers EPERM; the kernel never does */
            refuse("--memory-nodes: the container forbids memory policies; add CAP_SYS_NICE "
                   "(docker --cap-add SYS_NICE)");
        refuse("--memory-nodes: memory cannot be bound to nodes %s: %s", list, strerror(errno));
    }
    /* The kernel silently ignores nodes that do not exist, if at least one of the nodes exists. */
    if (syscall(SYS_get_mempolicy, &got_mode, got.part, bits, mapping.start, MPOL_F_ADDR) != 0)
        refuse("--memory-nodes: the policy cannot be read back: %s", strerror(errno));
    if (got_mode != mode || memcmp(&got, &wanted, sizeof got) != 0)
        refuse("--memory-nodes: not all of nodes %s have memory that this process may use", list);
}

static size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

static char *map_reserved(size_t bytes, enum page_kind pages) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
    flags |= page_kinds[pages].log2_bytes << MAP_HUGE_SHIFT;
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED)
        refuse("--pages %s: the kernel gave no huge pages: %s", page_kind_name(pages),
               strerror(errno));
    return start;
}

/* Maps anonymous memory, aligned to the page size, between two guard regions. Without guard
 * regions, the kernel may join the memory with a neighbouring mapping, and /proc/PID/numa_maps
 * would show both as one mapping. */
static char *map_anonymous(size_t bytes, size_t page_bytes) {
    size_t guarded = bytes + 2 * page_bytes;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *space = mmap(NULL, guarded, PROT_NONE, flags, -1, 0);
    if (space == MAP_FAILED)
        refuse("%zu MiB cannot be mapped: %s", bytes >> 20, strerror(errno));
    char *start = (char *)round_up((size_t)space + 1, page_bytes);
    if (mprotect(start, bytes, PROT_READ | PROT_WRITE) != 0)
        refuse("%zu MiB cannot be mapped: %s", bytes >> 20, strerror(errno));
    return start;
}

struct mapping map_memory(size_t bytes, struct placement placement) {
    struct mapping mapping = {.pages = placement.pages};
    mapping.page_bytes = page_bytes_of(placement.pages);
    mapping.bytes = round_up(bytes, mapping.page_bytes);
    if (reserved_pages(placement.pages)) {
        require_reserved_pages(mapping.bytes, mapping.page_bytes, placement);
        mapping.start = map_reserved(mapping.bytes, placement.pages);
    } else {
        require_free_memory(mapping.bytes, placement.nodes);
        mapping.start = map_anonymous(mapping.bytes, mapping.page_bytes);
        int advice = placement.pages == PAGES_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
        if (madvise(mapping.start, mapping.bytes, advice) != 0 && placement.pages == PAGES_THP)
            refuse("--pages thp: the kernel refused: %s", strerror(errno));
        /* MADV_NOHUGEPAGE fails only on kernels without huge pages, which need no advice */
    }
    if (placement.nodes.count > 0 && BINDS)
        bind(mapping, placement);
    return mapping;
}

size_t whole_pages(size_t bytes) { return round_up(bytes, (size_t)sysconf(_SC_PAGESIZE)); }

/* Creates the zeroed pages of a piece with one system call instead of one page fault per page. The
 * system call is only used for base pages, whose faults take most of the time of the set-up. Other
 * pages, and all pages on Linux before 5.14, are created by the first touch. */
static void populate(const struct mapping *mapping, char *start, size_t bytes) {
    if (mapping->pages != PAGES_BASE)
        return;
    size_t page = mapping->page_bytes;
    char *first = (char *)((size_t)start / page * page);
    char *last = (char *)round_up((size_t)start + bytes, page);
    (void)madvise(first, (size_t)(last - first), MADV_POPULATE_WRITE);
}

void fill_slice(const struct mapping *mapping, struct array_slice slice, fill_function *fill,
                void *context) {
    size_t piece = SETUP_PIECE_BYTES / slice.element_bytes, end = slice.from + slice.count;
    if (piece == 0)
        piece = 1;
    for (size_t from = slice.from; from < end && !stop_requested(); from += piece) {
        size_t count = end - from < piece ? end - from : piece;
        populate(mapping, (char *)slice.array + from * slice.element_bytes,
                 count * slice.element_bytes);
        fill(context, from, count);
    }
}

/* Returns the field AnonHugePages of the mapping in /proc/self/smaps, in bytes. For each mapping,
 * smaps has a line "START-END ...", which the fields of the mapping follow. */
static uint64_t transparent_bytes(const struct mapping *mapping) {
    FILE *smaps = fopen("/proc/self/smaps", "re");
    if (smaps == NULL)
        refuse("--pages thp: /proc/self/smaps cannot be read: %s", strerror(errno));
    size_t from = (size_t)mapping->start, to = from + mapping->bytes, start, end;
    bool inside = false;
    uint64_t kib, sum = 0;
    char line[512];
    while (fgets(line, sizeof line, smaps) != NULL) {
        if (sscanf(line, "%zx-%zx ", &start, &end) == 2)
            inside = start >= from && end <= to;
        else if (inside && sscanf(line, "AnonHugePages: %" SCNu64, &kib) == 1)
            sum += kib;
    }
    fclose(smaps);
    return sum * 1024;
}

uint64_t huge_page_bytes(const struct mapping *mapping) {
    if (mapping->pages == PAGES_BASE)
        return 0;
    if (mapping->pages != PAGES_THP)
        /* If a reserved page were missing, SIGBUS would have ended the process. */
        return mapping->bytes;
    uint64_t bytes = transparent_bytes(mapping);
    if (bytes < mapping->bytes)
        refuse("--pages thp: the kernel gave transparent huge pages for %" PRIu64 " of %zu bytes "
               "(see /sys/kernel/mm/transparent_hugepage/enabled and defrag, and free memory)",
               bytes, mapping->bytes);
    return bytes;
}

static void print_addresses(const struct mapping *mappings, int count) {
    printf("\"mapping\":%s", count > 1 ? "[" : "");
    for (int i = 0; i < count; i++)
        printf("%s\"%08zx\"", i > 0 ? "," : "", (size_t)mappings[i].start);
    printf("%s,", count > 1 ? "]" : "");
}

void print_placement(const struct placement *placement, const struct mapping *mappings, int count,
                     uint64_t in_huge_pages) {
    char nodes[1024];
    format_index_list(placement->nodes, nodes, sizeof nodes);
    if (placement->nodes.count > 0)
        printf("\"memory_nodes\":\"%s\",", nodes);
    else
        printf("\"memory_nodes\":null,");
    printf("\"policy\":\"%s\",", policy_name(placement));
    print_addresses(mappings, count);
    printf("\"pages\":\"%s\",\"page_bytes\":%zu,\"huge_page_bytes\":%" PRIu64 ",",
           page_kind_name(placement->pages), mappings->page_bytes, in_huge_pages);
}
