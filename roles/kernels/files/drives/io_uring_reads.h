/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads chunks of a striped array with io_uring, several at a time, and sums each chunk as soon as
 * it has arrived. Each thread has a separate reader.
 *
 * The calls use liburing, a library by the author of io_uring, because it contains the needed
 * memory barriers and workarounds for older kernels.
 */
#ifndef CHAOSITY_IO_URING_READS_H
#define CHAOSITY_IO_URING_READS_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drives/drive_stripes.h"

/* Number of chunks whose sums a thread keeps and compares at the end with new sums. */
enum { KEPT_CHUNKS = 16 };

struct pending_read {
    struct chunk chunk;
    int buffer;
    bool in_flight; /* says whether new reads are requested; true until stop_reading() */
};

struct kept {
    struct chunk chunk;
    uint64_t sum;
};

struct reader {
    const struct stripes *stripes;
    struct io_uring ring;
    bool registered;
    char *buffers; /* count + 1 buffers, since one is summed while all reads are in flight */
    int spare;     /* the buffer that no read uses */
    struct pending_read *pending_reads; /* the reads; each one always reads from the same drive */
    /* Number of reads of this thread; number of reads in flight now. */
    int count, pending_count;
    uint64_t summed;                    /* number of chunks summed so far */
    uint64_t random;                    /* state of the random choice of kept chunks */
    struct kept kept[KEPT_CHUNKS];
    struct chunk failed; /* the read that did not return a complete chunk, and its result */
    int result;
};

/* Ends the process with an error that gives the reason if this process may not use io_uring. */
void require_io_uring(void);

/* Returns the number of reads that thread `thread` of `threads` has in flight. All threads together
 * have `queue_depth` reads per drive, distributed evenly over the threads. */
int pending_reads_of_thread(const struct stripes *stripes, int queue_depth, int threads,
                            int thread);

/* Opens the io_uring of a thread, whose buffers begin at `buffers`. If the kernel refuses the
 * io_uring, the process ends with an error. */
void open_reader(struct reader *reader, const struct stripes *stripes, char *buffers,
                 int queue_depth, int threads, int thread, bool registered);
void close_reader(struct reader *reader);

enum arrival { NOTHING_YET, CHUNK_SUMMED, READ_FAILED };

/* Starts all reads that may be in flight at the same time. */
void start_reading(struct reader *reader);

/* Waits at most a few milliseconds for a chunk, requests the next chunk, and sums the chunk that
 * has arrived. */
enum arrival sum_next_chunk(struct reader *reader);

/* Waits for all reads in flight, without summing them. If a drive does not answer for some seconds,
 * the process ends with an error that names the drive and the read. */
void stop_reading(struct reader *reader);

/* Reads the chunks with kept sums again, with ordinary reads; returns how many chunks have another
 * sum now.
 */
uint64_t count_changed_chunks(struct reader *reader);

/* Returns the number of chunks whose sums are kept. */
int kept_count(const struct reader *reader);

/* Prints an error about the read that failed. */
void report_failed_read(const struct reader *reader);

#endif
