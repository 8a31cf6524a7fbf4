/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "opencl/pinned_copies.h"

#include <inttypes.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/errors.h"
#include "common/monotonic_clock.h"

/* Tests compile defects that the check must find: make EXTRA=-DMUTANT=1, ... */
#ifndef MUTANT
#define MUTANT NO_MUTANT
#endif
enum { NO_MUTANT, EVERY_COPY_SHORT, LATER_COPIES_SHORT, LINE_BYTES = 64 };

/* Longest wait, at the end, for the copies in flight, which take milliseconds. */
static const uint64_t longest_wait_ns = 10ull * 1000 * 1000 * 1000;
/* The node of each 256th page is checked, which is one page per MiB. */
enum { STAMPS = 3, PAGE_STEP = 256 };

static size_t piece_words(const struct copies *copies) {
    return copies->piece_bytes / sizeof(uint64_t);
}

/* Returns the content of a word that is copied; the contents are different for each direction. */
static uint64_t word_at(const struct copies *copies, size_t i) {
    return (2 * i + copies->to_device) * 0x9e3779b97f4a7c15ull + 1;
}

static size_t stamp_at(const struct copies *copies, size_t piece, int stamp) {
    return piece * piece_words(copies) + (piece_words(copies) - 1) * (size_t)stamp / (STAMPS - 1);
}

/* Returns the number, from 1, of the pass that copied a piece last; 0 if no pass did. */
static uint64_t last_pass(const struct copies *copies, size_t piece) {
    return (copies->begun + copies->pieces - 1 - piece) / copies->pieces;
}

static void begin_copy(struct copies *copies) {
    size_t piece = copies->begun % copies->pieces, from = piece * copies->piece_bytes;
    size_t bytes = copies->piece_bytes;
    if (MUTANT == EVERY_COPY_SHORT)
        bytes -= LINE_BYTES;
    if (MUTANT == LATER_COPIES_SHORT && copies->begun >= copies->pieces)
        bytes = LINE_BYTES;
    copies->begun++;
    for (int i = 0; i < STAMPS; i++) {
        size_t at = stamp_at(copies, piece, i);
        copies->words[at] = copies->to_device ? word_at(copies, at) + last_pass(copies, piece) : 0;
    }
    uint64_t *host = copies->words + from / sizeof(uint64_t);
    cl_event *event = &copies->events[(copies->begun - 1) % MOST_IN_FLIGHT];
    cl_int status = copies->to_device
                        ? clEnqueueWriteBuffer(copies->queue, copies->remote, CL_FALSE, from, bytes,
                                               host, 0, NULL, event)
                        : clEnqueueReadBuffer(copies->queue, copies->remote, CL_FALSE, from, bytes,
                                              host, 0, NULL, event);
    require_opencl(status, "a copy cannot be started");
    require_opencl(clFlush(copies->queue), "a copy cannot be started");
}

/* Returns whether the oldest copy in flight has ended; if it has ended, its piece is checked. */
static bool end_copy(struct copies *copies) {
    cl_event event = copies->events[copies->ended % MOST_IN_FLIGHT];
    cl_int state;
    cl_int status =
        clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
    require_opencl(status, "the state of a copy cannot be read");
    if (state > CL_COMPLETE)
        return false;
    require_opencl(state, "a copy failed");
    clReleaseEvent(event);
    for (int i = 0; i < STAMPS && !copies->to_device; i++) {
        size_t at = stamp_at(copies, copies->ended % copies->pieces, i);
        copies->wrong += copies->words[at] != word_at(copies, at);
    }
    copies->ended++;
    return true;
}

static uint64_t count_ended(struct copies *copies) {
    uint64_t before = copies->ended;
    while (copies->ended < copies->begun && end_copy(copies))
        ;
    return copies->ended - before;
}

uint64_t go_on_copying(struct copies *copies) {
    uint64_t ended = count_ended(copies);
    /* A piece is in flight only once at a time, since its stamps change. */
    size_t most = copies->pieces < MOST_IN_FLIGHT ? copies->pieces : MOST_IN_FLIGHT;
    while (copies->begun - copies->ended < most)
        begin_copy(copies);
    return ended;
}

void stop_copying(struct copies *copies) {
    uint64_t limit_ns = monotonic_ns() + longest_wait_ns;
    while (copies->ended < copies->begun) {
        if (count_ended(copies) == 0 && monotonic_ns() > limit_ns)
            refuse("a copy %s the device has not ended for %" PRIu64 " s",
                   copies->to_device ? "to" : "from", longest_wait_ns / 1000000000);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
    }
}

static void fill(const struct copies *copies, bool with_words) {
    for (size_t i = 0; i < copies->pieces * piece_words(copies); i++)
        copies->words[i] = with_words ? word_at(copies, i) : 0;
}

struct copies new_copies(const struct opencl_device *device, int queue, bool to_device,
                         size_t bytes, size_t piece_bytes) {
    struct copies copies = {
        .device = device,
        .queue = device->queue[queue],
        .to_device = to_device,
        .piece_bytes = piece_bytes,
        .pieces = bytes / piece_bytes,
    };
    cl_int status;
    /* The driver allocates the memory of the host, because drivers pin the memory that they
     * allocate. */
    copies.pinned = new_opencl_buffer(device, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, bytes,
                                      "a pinned buffer");
    copies.remote = new_opencl_buffer(device, CL_MEM_READ_WRITE, bytes, "a buffer");
    copies.words = clEnqueueMapBuffer(copies.queue, copies.pinned, CL_TRUE,
                                      CL_MAP_READ | CL_MAP_WRITE, 0, bytes, 0, NULL, NULL, &status);
    require_opencl(status, "pinned memory cannot be mapped");
    /* The side that receives the copies begins with zeros. */
    fill(&copies, !to_device);
    status = clEnqueueWriteBuffer(copies.queue, copies.remote, CL_TRUE, 0, bytes, copies.words, 0,
                                  NULL, NULL);
    require_opencl(status, "the device's buffer cannot be written");
    fill(&copies, to_device);
    while (copies.begun < copies.pieces) {
        begin_copy(&copies);
        stop_copying(&copies);
    }
    return copies;
}

void free_copies(const struct copies *copies) {
    (void)clEnqueueUnmapMemObject(copies->queue, copies->pinned, copies->words, 0, NULL, NULL);
    (void)clFinish(copies->queue);
    clReleaseMemObject(copies->pinned);
    clReleaseMemObject(copies->remote);
}

static bool is_stamp(const struct copies *copies, size_t piece, size_t at) {
    for (int i = 0; i < STAMPS; i++)
        if (at == stamp_at(copies, piece, i))
            return true;
    return false;
}

uint64_t wrong_words(const struct copies *copies, uint64_t *piece_of_device) {
    uint64_t wrong = copies->wrong;
    for (size_t piece = 0; piece < copies->pieces; piece++) {
        size_t first = piece * piece_words(copies);
        const uint64_t *words = copies->words + first;
        if (copies->to_device) {
            cl_int status = clEnqueueReadBuffer(copies->queue, copies->remote, CL_TRUE,
                                                piece * copies->piece_bytes, copies->piece_bytes,
                                                piece_of_device, 0, NULL, NULL);
            require_opencl(status, "the device's buffer cannot be read back");
            words = piece_of_device;
        }
        for (size_t i = 0; i < piece_words(copies); i++) {
            bool stamped = copies->to_device && is_stamp(copies, piece, first + i);
            uint64_t pass = stamped ? last_pass(copies, piece) : 0;
            wrong += words[i] != word_at(copies, first + i) + pass;
        }
    }
    return wrong;
}

uint64_t pages_on_nodes(const struct copies *copies, struct index_list nodes) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t seen = 0;
    char *start = (char *)(void *)copies->words;
    for (size_t at = 0; at < copies->pieces * copies->piece_bytes; at += PAGE_STEP * page_bytes) {
        void *page = start + at;
        int node = -1;
        bool wanted = nodes.count == 0;
        if (syscall(SYS_move_pages, 0, 1ul, &page, NULL, &node, 0) != 0 || node < 0)
            continue; /* the pages are hidden by the driver, or the kernel has no NUMA */
        for (int i = 0; i < nodes.count; i++)
            wanted |= nodes.index[i] == node;
        if (!wanted)
            refuse("--memory-nodes: memory of the host lies on node %d", node);
        seen++;
    }
    return seen;
}
