/* SPDX-License-Identifier: Apache-2.0
 *
 * Each thread repeatedly sums its own part of an array in memory, or the chunks of drives that its
 * io_uring returns. No thread waits for another thread. The first thread is the leader: it also
 * reads how many bytes all threads have summed, and prints samples.
 *
 * At first, an array in memory contains the values of the kernel `read`, whole numbers with a known
 * sum, which are then converted to integers. Before each pass, every thread adds a number that
 * depends on the pass to one of its integers, so a pass that is skipped or reads stale data has a
 * wrong sum.
 */
#define _GNU_SOURCE
#include "drives/array_sum_run.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/monotonic_clock.h"
#include "common/run_options.h"
#include "common/spin_barrier.h"
#include "common/start_line_and_signals.h"
#include "drives/integer_sum.h"
#include "drives/io_uring_reads.h"
#include "streams/stream_arrays.h"
#include "streams/thread_team.h"

/* Number of words in memory that a thread sums before it updates its count. The sum takes some ten
 * microseconds, which is short enough for smooth samples and so long that the time of the update is
 * negligible. */
enum { PIECE_WORDS = 256 * 1024 / 8 };

/* Time for which a thread without reads sleeps. If there are more threads than reads, some threads
 * have no read. */
static const struct timespec idle_time = {.tv_nsec = 1000 * 1000};

struct thread {
    _Alignas(PADDING_BYTES) atomic_uint_fast64_t bytes; /* number of bytes summed since the start */
    struct member *member;
    struct reader reader; /* used only for an array on drives */
    uint64_t *words;      /* the part of an array in memory that the thread sums */
    size_t count, at;     /* length of this part, and position of the present pass in it */
    uint64_t pass, sum, wanted;
};

struct state {
    const struct sum_options *options;
    struct arrays arrays; /* the array in memory, or the buffers for the chunks of the drives */
    struct team team;
    struct thread *threads;
    pthread_barrier_t ready; /* threads sleep here until all have converted their integers */
    atomic_bool stop;
    _Atomic(struct thread *) failed;
};

static bool on_drives(const struct state *state) { return state->options->stripes.count > 0; }

static void make_integers(struct thread *thread, const struct part *part) {
    thread->words = (uint64_t *)(void *)part->array[0];
    thread->count = part->elements;
    thread->wanted = (uint64_t)part->read_sum;
    for (size_t i = 0; i < part->elements; i++) {
        double whole = part->array[0][i];
        __builtin_memcpy(&thread->words[i], &(uint64_t){(uint64_t)whole}, sizeof(uint64_t));
    }
}

static void begin_pass(struct thread *thread) {
    thread->pass++;
    thread->words[thread->pass * 2654435761u % thread->count] += thread->pass;
    thread->wanted += thread->pass;
    thread->at = thread->sum = 0;
}

/* The last pass can end anywhere, so its sum is compared with a second sum of the same words. */
static void end_passes(struct thread *thread) {
    thread->member->verdict.wrong += thread->sum != sum_words_one_by_one(thread->words, thread->at);
}

static void sum_piece(struct thread *thread) {
    if (thread->at == 0)
        begin_pass(thread);
    size_t left = thread->count - thread->at;
    size_t count = left < PIECE_WORDS ? left : PIECE_WORDS;
    thread->sum += sum_words(thread->words + thread->at, count);
    thread->at += count;
    atomic_fetch_add_explicit(&thread->bytes, count * sizeof(uint64_t), memory_order_relaxed);
    if (thread->at < thread->count)
        return;
    thread->member->verdict.wrong += thread->sum != thread->wanted;
    thread->at = thread->sum = 0;
}

static void sum_chunk(struct state *state, struct thread *thread) {
    if (thread->reader.count == 0) {
        nanosleep(&idle_time, NULL);
        return;
    }
    enum arrival arrival = sum_next_chunk(&thread->reader);
    if (arrival == CHUNK_SUMMED)
        atomic_fetch_add_explicit(&thread->bytes, state->options->stripes.chunk_bytes,
                                  memory_order_relaxed);
    if (arrival != READ_FAILED)
        return;
    thread->member->verdict.wrong++;
    struct thread *nobody = NULL;
    atomic_compare_exchange_strong(&state->failed, &nobody, thread);
    atomic_store(&state->stop, true);
}

/* Does one step of a thread: sums a piece of its part, or a chunk if one has arrived. */
static void go_on(struct state *state, struct thread *thread) {
    if (on_drives(state))
        sum_chunk(state, thread);
    else
        sum_piece(thread);
}

static bool is_over(const struct state *state) {
    return stop_requested() || atomic_load_explicit(&state->stop, memory_order_relaxed);
}

static uint64_t bytes_of_all(const struct state *state) {
    uint64_t sum = 0;
    for (int i = 0; i < state->team.cpus.count; i++)
        sum += atomic_load_explicit(&state->threads[i].bytes, memory_order_relaxed);
    return sum;
}

struct mark {
    uint64_t ns, bytes;
};

static struct mark mark_now(const struct state *state) {
    return (struct mark){monotonic_ns(), bytes_of_all(state)};
}

/* Runs the warm-up, the samples and the end of the measurement in the first thread. A sample
 * without bytes is not printed, since a slow drive may need longer than a sample for a chunk. */
static void lead(struct state *state) {
    const struct run_options *run_options = state->team.run_options;
    uint64_t sample_ns = (uint64_t)(run_options->sample_seconds * 1e9);
    struct mark from = mark_now(state), now = from;
    uint64_t begin_ns = from.ns + (uint64_t)(state->options->warmup_seconds * 1e9);
    while ((now.ns < begin_ns || now.bytes == 0) && !is_over(state)) {
        go_on(state, &state->threads[0]);
        now = mark_now(state);
    }
    from = now;
    uint64_t limit_ns = now.ns + (uint64_t)(run_options->max_seconds * 1e9);
    bool over = is_over(state);
    while (!over) {
        go_on(state, &state->threads[0]);
        now = mark_now(state);
        over = now.ns >= limit_ns || is_over(state);
        if (now.bytes == from.bytes || (now.ns - from.ns < sample_ns && !over))
            continue;
        print_sample(from.ns, now.ns, "bytes", now.bytes - from.bytes);
        from = now;
    }
    state->team.stopped_by = stop_requested() ? "signal" : "time";
    if (atomic_load(&state->failed) != NULL)
        state->team.stopped_by = "error";
    atomic_store(&state->stop, true);
}

static void follow(struct state *state, struct thread *thread) {
    while (!atomic_load_explicit(&state->stop, memory_order_relaxed))
        go_on(state, thread);
}

static void set_up(void *self, int index) {
    const struct state *state = self;
    touch_part(&state->arrays, index);
}

static void run_thread(void *self, int index) {
    struct state *state = self;
    struct thread *thread = &state->threads[index];
    thread->member = &state->team.members[index];
    if (!on_drives(state))
        make_integers(thread, &state->arrays.parts[index]);
    pthread_barrier_wait(&state->ready);
    if (thread->reader.count > 0)
        start_reading(&thread->reader);
    if (index == 0)
        lead(state);
    else
        follow(state, thread);
    if (!on_drives(state)) {
        end_passes(thread);
        return;
    }
    stop_reading(&thread->reader);
    thread->member->verdict.wrong += count_changed_chunks(&thread->reader);
}

/* Opens the io_urings of all threads as soon as their buffers exist, so that errors are reported
 * before the ready line. */
static void open_readers(const struct state *state) {
    const struct sum_options *options = state->options;
    int threads = state->team.cpus.count;
    for (int i = 0; i < threads; i++) {
        char *buffers = (char *)(void *)state->arrays.parts[i].array[0];
        open_reader(&state->threads[i].reader, &options->stripes, buffers, options->queue_depth,
                    threads, i, options->registered);
    }
}

static void print_drives(const struct sum_options *options) {
    const struct stripes *stripes = &options->stripes;
    printf("\"drives\":%d,\"chunk_bytes\":%zu,\"queue_depth\":%d,\"registered_buffers\":%s,",
           stripes->count, stripes->chunk_bytes, options->queue_depth,
           options->registered ? "true" : "false");
}

static void print_ready(const void *self) {
    const struct state *state = self;
    const struct sum_options *options = state->options;
    if (on_drives(state))
        open_readers(state);
    printf("{\"event\":\"ready\",\"kernel\":\"%s\",\"array_bytes\":%" PRIu64 ",",
           state->arrays.stream->name,
           on_drives(state) ? options->stripes.chunks * options->stripes.chunk_bytes
                            : (uint64_t)options->stream_options.array_bytes);
    print_drives(options);
    print_team(&state->team);
    print_run_options(state->team.run_options);
    printf("\"warmup_seconds\":%g,", options->warmup_seconds);
    print_build();
}

/* Returns the bytes of all buffers: each thread gets the number of bytes that the thread with the
 * most reads needs. */
static size_t buffer_bytes(const struct sum_options *options) {
    int threads = options->stream_options.cpus.count;
    int most = pending_reads_of_thread(&options->stripes, options->queue_depth, threads, 0) + 1;
    return (size_t)threads * (size_t)most * options->stripes.chunk_bytes;
}

static int end_readers(struct state *state) {
    int kept = 0;
    struct thread *failed = atomic_load(&state->failed);
    for (int i = 0; i < state->team.cpus.count && on_drives(state); i++) {
        struct reader *reader = &state->threads[i].reader;
        kept += kept_count(reader);
        if (&state->threads[i] == failed)
            report_failed_read(reader);
        close_reader(reader);
    }
    return kept;
}

int run_sum(const struct sum_options *options) {
    const struct stream_options *stream_options = &options->stream_options;
    int threads = stream_options->cpus.count;
    struct state state = {
        .options = options,
        .threads = allocate_padded(threads, sizeof(struct thread)),
        .arrays = {.stream = stream_options->stream,
                   .bytes = stream_options->array_bytes,
                   .threads = threads},
    };
    if (on_drives(&state))
        state.arrays.bytes = buffer_bytes(options);
    map_arrays(&state.arrays, stream_options->run_options.placement);
    state.team = (struct team){
        .cpus = stream_options->cpus,
        .run_options = &stream_options->run_options,
        .mappings = &state.arrays.mapping,
        .mapping_count = 1,
        .arrays = &state.arrays,
    };
    pthread_barrier_init(&state.ready, NULL, (unsigned)threads);
    run_team(&state.team, &(struct team_work){set_up, print_ready, run_thread, &state});
    printf("{\"event\":\"done\",\"bytes\":%" PRIu64 ",\"compared_chunks\":%d,",
           bytes_of_all(&state), end_readers(&state));
    free(state.threads);
    int exit_code = end_team(&state.team, stream_options->stream->name, "gave");
    free_arrays(&state.arrays);
    return exit_code;
}
