/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads chunks of a striped array with io_uring, several at a time, and sums each chunk as soon as
 * it has arrived. Each thread has its own reader.
 *
 * The calls go through liburing, from io_uring's author, because it has the needed memory barriers
 * and workarounds for older kernels.
 */
#ifndef CHAOSITY_IO_URING_READS_H
#define CHAOSITY_IO_URING_READS_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drives/drive_stripes.h"

/* Number of chunks whose sums a thread keeps, to compare them at the end. */
enum { KEPT_CHUNKS = 16 };

struct pending_read {
    struct chunk chunk;
    int buffer;
    bool in_flight; /* true until stop_reading() */
};

struct kept {
    struct chunk chunk;
    uint64_t sum;
};

struct reader {
    const struct stripes *stripes;
    struct io_uring ring;
    bool registered;
    char *buffers; /* count + 1 buffers: one is summed while all reads are in flight */
    int spare;     /* the buffer into which no read writes */
    struct pending_read *pending_reads; /* each always reads from the same drive */
    int count, pending_count;           /* number of this thread's reads; of those in flight now */
    uint64_t summed;                    /* number of chunks summed so far */
    uint64_t random;                    /* state of the random choice of kept chunks */
    struct kept kept[KEPT_CHUNKS];
    struct chunk failed; /* the read that did not return a whole chunk, and its result */
    int result;
};

/* Refuses when this process may not use io_uring, and names the reason. */
void require_io_uring(void);

/* Number of reads that thread `thread` of `threads` has in flight. All threads together have
 * `queue_depth` reads per drive, distributed evenly. */
int pending_reads_of_thread(const struct stripes *stripes, int queue_depth, int threads,
                            int thread);

/* Opens the io_uring of a thread, whose buffers begin at `buffers`. Refuses when the kernel refuses
 * the io_uring. */
void open_reader(struct reader *reader, const struct stripes *stripes, char *buffers,
                 int queue_depth, int threads, int thread, bool registered);
void close_reader(struct reader *reader);

enum arrival { NOTHING_YET, CHUNK_SUMMED, READ_FAILED };

/* Starts as many reads as may be in flight. */
void start_reading(struct reader *reader);

/* Waits a few milliseconds at most for a chunk; requests the next chunk and sums it. */
enum arrival sum_next_chunk(struct reader *reader);

/* Waits for all reads in flight, without summing them. Refuses when a drive does not answer for
 * some seconds, and names the drive and the read. */
void stop_reading(struct reader *reader);

/* Reads the kept chunks again with ordinary reads; returns how many of them have another sum now.
 */
uint64_t count_changed_chunks(struct reader *reader);

/* Number of kept chunks. */
int kept_count(const struct reader *reader);

/* Prints an error about the read that failed. */
void report_failed_read(const struct reader *reader);

#endif
