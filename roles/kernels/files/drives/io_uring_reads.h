/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that reads chunks of a striped array and sums each as soon as it has arrived, while
 * others are on their way.
 *
 * liburing, of io_uring's own author, has the memory barriers and the ways around older kernels.
 */
#ifndef CHAOSITY_RING_H
#define CHAOSITY_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drives/drive_stripes.h"

/* Of how many chunks a thread keeps the sum, to be compared at the end. */
enum { KEPT_CHUNKS = 16 };

struct flight { /* one read on its way */
    struct chunk chunk;
    int buffer;
};

struct kept {
    struct chunk chunk;
    uint64_t sum;
};

struct reader {
    const struct stripes *stripes;
    struct io_uring ring;
    bool registered;
    char *buffers;          /* flights + 1 of them: one is summed while all reads are on their way */
    int spare;              /* the one into which nothing is read */
    struct flight *flights; /* each always from the same drive */
    int count, on_their_way;
    uint64_t summed; /* chunks */
    uint64_t random; /* the state of the choice of what is kept */
    struct kept kept[KEPT_CHUNKS];
    struct chunk failed; /* the read that did not give a whole chunk, and what it said */
    int result;
};

/* Refuses when this process may not use io_uring, and says what forbids it. */
void require_io_uring(void);

/* How many chunks of all drives thread `thread` of `threads` has on their way at once: so many a
 * drive in all, dealt out in turn. */
int flights_of(const struct stripes *stripes, int queue_depth, int threads, int thread);

/* Makes the ring of a thread; its buffers begin at `buffers`. Refuses what the kernel refuses. */
void open_reader(struct reader *reader, const struct stripes *stripes, char *buffers,
                 int queue_depth, int threads, int thread, bool registered);
void close_reader(struct reader *reader);

enum arrival { NOTHING_YET, CHUNK_SUMMED, READ_FAILED };

/* Asks for as many chunks as may be on their way. */
void start_reading(struct reader *reader);

/* Waits a few milliseconds at most for a chunk; asks for the next one and sums it. */
enum arrival sum_next(struct reader *reader);

/* Waits for what is still on its way, without summing it. */
void stop_reading(struct reader *reader);

/* Reads the chunks that were kept once more, by plain reads, and returns how many have another sum
 * now. */
uint64_t compare_kept(struct reader *reader);

/* How many chunks were kept. */
int kept_count(const struct reader *reader);

/* Complains of the read that failed. */
void complain_of_read(const struct reader *reader);

#endif
