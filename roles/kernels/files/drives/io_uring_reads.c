/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "drives/io_uring_reads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/parse_numbers.h"
#include "drives/integer_sum.h"

/* Longest wait for a chunk; a stop signal is noticed after the wait. */
static const long longest_wait_ns = 5 * 1000 * 1000;

/* Longest wait for the drives at the end of the measurement, after which an error names the drive
 * that does not answer. Without this limit, the program would wait until the runner kills it after
 * 20 s. */
#ifndef SILENT_SECONDS /* tests compile the program with a shorter time */
#define SILENT_SECONDS 10
#endif

static _Noreturn void refuse_ring(int error) {
    if (error == ENOSYS)
        refuse("this kernel has no io_uring; it needs Linux 5.1 or later");
    if (error == EPERM && kernel_number("/proc/sys/kernel/io_uring_disabled", "") > 0)
        refuse("io_uring is not permitted: kernel.io_uring_disabled is %" PRId64
               "; set it to 0, or run as root if it is 1",
               kernel_number("/proc/sys/kernel/io_uring_disabled", ""));
    if (error == EPERM || error == EACCES)
        refuse("io_uring is not permitted: a system call filter (seccomp), as in containers, "
               "forbids it");
    if (error == ENOMEM)
        refuse("the kernel has no memory for io_uring; raise the limit of locked memory "
               "(ulimit -l)");
    refuse("io_uring cannot be used: %s", strerror(error));
}

void require_io_uring(void) {
    struct io_uring ring;
    int error = -io_uring_queue_init(1, &ring, 0);
    if (error != 0)
        refuse_ring(error);
    io_uring_queue_exit(&ring);
}

int pending_reads_of_thread(const struct stripes *stripes, int queue_depth, int threads,
                            int thread) {
    int all = stripes->count * queue_depth;
    return all / threads + (thread < all % threads ? 1 : 0);
}

static char *buffer_at(const struct reader *reader, int buffer) {
    return reader->buffers + (size_t)buffer * reader->stripes->chunk_bytes;
}

static void register_buffers(struct reader *reader) {
    int buffers = reader->count + 1;
    struct iovec *pieces = calloc((size_t)buffers, sizeof *pieces);
    if (pieces == NULL)
        refuse("out of memory");
    for (int i = 0; i < buffers; i++)
        pieces[i] = (struct iovec){buffer_at(reader, i), reader->stripes->chunk_bytes};
    int error = -io_uring_register_buffers(&reader->ring, pieces, (unsigned)buffers);
    free(pieces);
    if (error == ENOMEM)
        refuse("--registered-buffers: %zu bytes per thread may not be locked in memory; raise the "
               "limit (ulimit -l) or run as root",
               (size_t)buffers * reader->stripes->chunk_bytes);
    if (error != 0)
        refuse("--registered-buffers: the kernel refused %d buffers of %zu bytes: %s", buffers,
               reader->stripes->chunk_bytes, strerror(error));
}

void open_reader(struct reader *reader, const struct stripes *stripes, char *buffers,
                 int queue_depth, int threads, int thread, bool registered) {
    *reader = (struct reader){
        .stripes = stripes,
        .buffers = buffers,
        .registered = registered,
        .count = pending_reads_of_thread(stripes, queue_depth, threads, thread),
        .random = monotonic_ns() | 1, /* the state must not be 0, since xorshift would stay at 0 */
    };
    reader->spare = reader->count;
    if (reader->count == 0)
        return;
    reader->pending_reads = calloc((size_t)reader->count, sizeof *reader->pending_reads);
    if (reader->pending_reads == NULL)
        refuse("out of memory");
    /* The reads of all threads are numbered so that neighbouring numbers belong to different
     * drives. */
    for (int i = 0; i < reader->count; i++) {
        reader->pending_reads[i].chunk.drive = (i * threads + thread) % stripes->count;
        reader->pending_reads[i].buffer = i;
    }
    int error = -io_uring_queue_init((unsigned)reader->count, &reader->ring, 0);
    if (error != 0)
        refuse_ring(error);
    if (registered)
        register_buffers(reader);
}

void close_reader(struct reader *reader) {
    if (reader->count > 0)
        io_uring_queue_exit(&reader->ring);
    free(reader->pending_reads);
}

/* Requests the next chunk of the same drive. */
static void request_next_chunk(struct reader *reader, struct pending_read *pending) {
    size_t bytes = reader->stripes->chunk_bytes;
    pending->chunk = take_chunk(reader->stripes, pending->chunk.drive);
    struct io_uring_sqe *entry =
        /* An entry is free, because the ring has an entry for each read. */
        io_uring_get_sqe(&reader->ring);
    int fd = reader->stripes->drives[pending->chunk.drive].fd;
    char *to = buffer_at(reader, pending->buffer);
    if (reader->registered)
        io_uring_prep_read_fixed(entry, fd, to, (unsigned)bytes, pending->chunk.offset,
                                 pending->buffer);
    else
        io_uring_prep_read(entry, fd, to, (unsigned)bytes, pending->chunk.offset);
    io_uring_sqe_set_data(entry, pending);
    pending->in_flight = true;
    reader->pending_count++;
}

static void submit(struct reader *reader) {
    int result = io_uring_submit(&reader->ring);
    if (result < 0)
        refuse("io_uring accepts no more reads: %s", strerror(-result));
}

void start_reading(struct reader *reader) {
    for (int i = 0; i < reader->count; i++)
        request_next_chunk(reader, &reader->pending_reads[i]);
    submit(reader);
}

/* Returns a read that has completed, and its result; NULL if no read completes in time. */
static struct pending_read *next_arrival(struct reader *reader, int *result) {
    struct __kernel_timespec longest = {.tv_nsec = longest_wait_ns};
    struct io_uring_cqe *event;
    int error = -io_uring_wait_cqe_timeout(&reader->ring, &event, &longest);
    if (error == ETIME || error == EINTR || error == EAGAIN)
        return NULL;
    if (error != 0)
        refuse("io_uring cannot be waited for: %s", strerror(error));
    struct pending_read *pending = io_uring_cqe_get_data(event);
    *result = event->res;
    io_uring_cqe_seen(&reader->ring, event);
    pending->in_flight = false;
    reader->pending_count--;
    return pending;
}

/* Returns a random number by the method of Marsaglia, Xorshift RNGs (2003). */
static uint64_t next_random(struct reader *reader) {
    reader->random ^= reader->random << 13;
    reader->random ^= reader->random >> 7;
    return reader->random ^= reader->random << 17;
}

/* Keeps the sums of a random sample of chunks, in which all chunks are equally likely (Vitter's
 * algorithm R). */
static void keep(struct reader *reader, struct chunk chunk, uint64_t sum) {
    uint64_t place = reader->summed;
    if (place >= KEPT_CHUNKS)
        place = next_random(reader) % (reader->summed + 1);
    if (place < KEPT_CHUNKS)
        reader->kept[place] = (struct kept){chunk, sum};
    reader->summed++;
}

enum arrival sum_next_chunk(struct reader *reader) {
    int result;
    struct pending_read *pending = next_arrival(reader, &result);
    if (pending == NULL)
        return NOTHING_YET;
    struct chunk chunk = pending->chunk;
    if (result < 0 || (size_t)result != reader->stripes->chunk_bytes) {
        reader->failed = chunk;
        reader->result = result;
        return READ_FAILED;
    }
    int arrived = pending->buffer;
    pending->buffer = reader->spare;
    reader->spare = arrived;
    request_next_chunk(reader, pending);
    submit(reader);
    const uint64_t *words = (const uint64_t *)(const void *)buffer_at(reader, arrived);
    keep(reader, chunk, sum_words(words, reader->stripes->chunk_bytes / sizeof *words));
    return CHUNK_SUMMED;
}

static _Noreturn void refuse_silent_drive(const struct reader *reader) {
    const struct pending_read *missing = reader->pending_reads;
    while (!missing->in_flight)
        missing++;
    refuse("%s does not answer: the read at %" PRIu64 " is missing after %d s, and %d more",
           reader->stripes->drives[missing->chunk.drive].path, missing->chunk.offset,
           SILENT_SECONDS, reader->pending_count - 1);
}

void stop_reading(struct reader *reader) {
    uint64_t heard_ns = monotonic_ns();
    int ignored;
    while (reader->pending_count > 0) {
        if (next_arrival(reader, &ignored) != NULL)
            heard_ns = monotonic_ns();
        else if (monotonic_ns() - heard_ns > SILENT_SECONDS * UINT64_C(1000000000))
            refuse_silent_drive(reader);
    }
}

int kept_count(const struct reader *reader) {
    return reader->summed < KEPT_CHUNKS ? (int)reader->summed : KEPT_CHUNKS;
}

uint64_t count_changed_chunks(struct reader *reader) {
    size_t bytes = reader->stripes->chunk_bytes;
    char *to = buffer_at(reader, 0);
    const uint64_t *words = (const uint64_t *)(const void *)to;
    uint64_t wrong = 0;
    for (int i = 0; i < kept_count(reader); i++) {
        const struct kept *kept = &reader->kept[i];
        int fd = reader->stripes->drives[kept->chunk.drive].fd;
        memset(to, 0,
               /* The buffer is changed first, since a read that returns nothing would leave the old
                * contents. */
               bytes);
        ssize_t got = pread(fd, to, bytes, (off_t)kept->chunk.offset);
        if (got != (ssize_t)bytes ||
            sum_words_one_by_one(words, bytes / sizeof *words) != kept->sum)
            wrong++;
    }
    return wrong;
}

void report_failed_read(const struct reader *reader) {
    const char *path = reader->stripes->drives[reader->failed.drive].path;
    if (reader->result < 0)
        complain("%s cannot be read at %" PRIu64 ": %s", path, reader->failed.offset,
                 strerror(-reader->result));
    else
        complain("%s returned %d of %zu bytes at %" PRIu64, path, reader->result,
                 reader->stripes->chunk_bytes, reader->failed.offset);
}
