/* SPDX-License-Identifier: Apache-2.0
 *
 * Each thread of the team reads and writes its part of the arrays repeatedly, in small chunks, and
 * never waits for another thread. After each chunk, the thread reads the phase, which the leader
 * sets, so that all threads change the phase and stop at the same time, even if their speeds are
 * different. (With passes of a fixed length, threads of different speed would end at different
 * times, and the load would be too low at the end.)
 *
 * The rate of a thread is a share of the thread's peak rate, which is measured while all threads
 * run at full speed. Each chunk has a time slot whose length is the duration of a chunk at the peak
 * divided by the share. If a chunk is late, all later slots are moved, because catching up would be
 * a burst. So interruptions of a thread reduce its rate, at the peak and later. Slots are therefore
 * computed from the median duration at the peak, which contains no interruptions; otherwise,
 * interruptions would count twice.
 */
#define _GNU_SOURCE
#include "streams/limited_rate_traffic.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/monotonic_clock.h"
#include "common/run_options.h"
#include "common/spin_barrier.h"
#include "common/start_line_and_signals.h"
#include "streams/array_validation.h"
#include "streams/stream_arrays.h"
#include "streams/thread_team.h"

const struct traffic_kernel traffic_kernels[] = {
    {"read", 1, 0},    /* only reads */
    {"copy", 2, 1},    /* reads, fetches and writes: ordinary stores */
    {"add_nt", 2, 1},  /* two reads for each write: non-temporal stores */
    {"fill", 1, 1},    /* fetches and writes: ordinary stores */
    {"copy_nt", 1, 1}, /* reads and writes: non-temporal stores */
};
const int traffic_kernel_count = sizeof traffic_kernels / sizeof traffic_kernels[0];

/* Bytes of a chunk in all arrays. A core moves a chunk in one or two microseconds, which is short
 * enough for an even rate, and long enough that the overhead per chunk, mainly a clock reading, is
 * a few per cent at most. */
enum { CHUNK_BYTES = 16 * 1024 };

/* Number of chunks after which the leader reads the clock at full speed. The leader does not read
 * it after each chunk, because a reading waits for all earlier loads. The other threads do not read
 * the clock. */
enum { CHUNKS_A_LOOK = 16 };

/* Number of chunks between two checks of non-temporal stores. Non-temporal stores fetch nothing, so
 * reading what they will overwrite is extra traffic that is not counted. If only one line per 64
 * chunks is checked, this extra traffic is below 0.01 %. */
enum { CHUNKS_A_CHECK_NT = 64 };

/* Number of chunks that are timed together at the peak, so that clock readings take almost no time,
 * and number of times that are kept. The kept times are from about the last 0.1 s, and are sorted
 * in less than 100 us. */
enum { CHUNKS_A_TIME = 64, TIMES = 1024 };

enum phase { WARM_UP, PEAK, MEASURED, STOP, PHASES };

struct note {
    uint64_t ns, chunks; /* time when a thread saw that a phase began, and its chunks until then */
};

struct thread {
    _Alignas(PADDING_BYTES) atomic_uint_fast64_t chunks; /* number of chunks done since the start */
    size_t chunk;   /* index of the next chunk in the thread's part */
    uint64_t visit; /* number of earlier visits to the next chunk */
    struct member *member;
    const struct part *part;
    size_t chunks_a_pass;
    /* Sum of all elements that `read` has read; it overflows in the same way as the expected
     * sum. */
    uint64_t sum;
    /* Time when the next chunk may begin; if the period is 0, it may begin at once. */
    uint64_t slot_ns, period_ns;
    struct note seen[PHASES];
    uint64_t timed_ns; /* time of the last clock reading at the peak, or 0 */
    double times_ns[TIMES];
    size_t times; /* number of measured times; the last TIMES of them are kept */
    int index;
    /* Number of chunks of this thread when the leader began the peak. */
    uint64_t chunks_before_peak;
};

struct state {
    const struct traffic_options *options;
    struct arrays arrays;
    struct team team;
    size_t chunk_elements;
    struct thread *threads;
    struct spin_barrier
        start; /* all threads begin within the time that a cache line takes to move between cores */
    uint64_t sample_ns,
        sample_lines; /* start of the current sample, in time and in lines of an array */
    uint64_t first_lines, first_chunks, limit_ns;
    _Alignas(PADDING_BYTES) _Atomic enum phase
        phase; /* this variable has a separate cache line, since all threads read it */
};

static enum phase phase_of(const struct state *state) {
    return atomic_load_explicit(&state->phase, memory_order_relaxed);
}

static void set_phase(struct state *state, enum phase phase) {
    atomic_store_explicit(&state->phase, phase, memory_order_relaxed);
}

static uint64_t chunks_of(const struct thread *thread) {
    return atomic_load_explicit(&thread->chunks, memory_order_relaxed);
}

/* Returns the number of lines of an array in a number of chunks of a thread's part. All chunks have
 * the same length, except the last chunk of the part. */
static uint64_t lines_in(const struct state *state, const struct thread *thread, uint64_t chunks) {
    uint64_t whole = chunks / thread->chunks_a_pass, rest = chunks % thread->chunks_a_pass;
    return (whole * thread->part->elements + rest * state->chunk_elements) / LINE_DOUBLES;
}

static uint64_t bytes_of_lines(const struct state *state, uint64_t lines) {
    const struct traffic_kernel *kernel = state->options->kernel;
    return lines * (uint64_t)(kernel->reads + kernel->writes) * LINE_BYTES;
}

struct progress {
    uint64_t chunks, lines;
};

static struct progress progress_of(const struct state *state) {
    struct progress sum = {0};
    for (int i = 0; i < state->team.cpus.count; i++) {
        uint64_t chunks = chunks_of(&state->threads[i]);
        sum.chunks += chunks;
        sum.lines += lines_in(state, &state->threads[i], chunks);
    }
    return sum;
}

/* Returns a chunk of a part for a given visit. Odd visits read the source elements of the next
 * chunk, so that the results of copy and add differ from visit to visit. */
static struct piece piece_of(const struct state *state, const struct thread *thread, size_t chunk,
                             uint64_t visit) {
    size_t length = state->chunk_elements, elements = thread->part->elements;
    struct piece piece = {.from = chunk * length, .visit = visit};
    piece.count = elements - piece.from < length ? elements - piece.from : length;
    piece.source = visit % 2 == 0 ? piece.from : (chunk + 1) % thread->chunks_a_pass * length;
    if (piece.source > elements - piece.count) /* the next chunk is the shorter last chunk */
        piece.source = elements - piece.count;
    return piece;
}

/* Checks, before a chunk is overwritten, that it contains the result of the visit before. Each
 * time, one element is checked, a different one than before. */
static void check_former_visit(const struct state *state, struct thread *thread) {
    const struct stream *stream = state->arrays.stream;
    if (stream->operation == READ ||
        (stream->non_temporal && chunks_of(thread) % CHUNKS_A_CHECK_NT != 0))
        return;
    uint64_t former = thread->visit == 0 ? NEVER : thread->visit - 1;
    struct piece piece = piece_of(state, thread, thread->chunk, former);
    size_t at = chunks_of(thread) * 2654435761u % piece.count;
    check_element(stream, thread->part, &piece, at, &thread->member->verdict);
}

static double run_chunk_of(const struct state *state, const struct thread *thread,
                           struct piece piece) {
    uint64_t chunks = chunks_of(thread);
    if (mutant_leaves_out_the_end(chunks))
        piece.count -= LINE_DOUBLES;
    if (mutant_skips(chunks))
        return 0;
    double sum = run_piece(state->arrays.stream, thread->part, &piece);
    if (chunks == MUTANT_PASS)
        thread->part->array[0][piece.from] = mutated(thread->part->array[0][piece.from], chunks);
    return sum;
}

static void run_chunk(const struct state *state, struct thread *thread) {
    check_former_visit(state, thread);
    struct piece piece = piece_of(state, thread, thread->chunk, thread->visit);
    thread->sum += (uint64_t)run_chunk_of(state, thread, piece);
    if (++thread->chunk == thread->chunks_a_pass) {
        thread->chunk = 0;
        thread->visit++;
    }
    /* a plain store instead of an atomic addition, since only this thread writes the count */
    atomic_store_explicit(&thread->chunks, chunks_of(thread) + 1, memory_order_relaxed);
}

static void check_thread(const struct state *state, struct thread *thread) {
    struct member *member = thread->member;
    const struct stream *stream = state->arrays.stream;
    uint64_t sum = 0;
    check_sources(stream, thread->part, &member->verdict);
    for (size_t chunk = 0; chunk < thread->chunks_a_pass; chunk++) {
        uint64_t visits = thread->visit + (chunk < thread->chunk ? 1 : 0);
        struct piece piece = piece_of(state, thread, chunk, visits == 0 ? NEVER : visits - 1);
        if (stream->operation == READ)
            sum += visits * (uint64_t)sum_of_piece(thread->part, &piece);
        else
            check_piece(stream, thread->part, &piece, &member->verdict);
    }
    if (stream->operation == READ && sum != thread->sum) {
        double error = fabs((double)thread->sum - (double)sum) / fmax((double)sum, 1);
        member->verdict.wrong++;
        member->verdict.max_relative_error = fmax(member->verdict.max_relative_error, error);
    }
}

static void time_chunks(struct thread *thread) {
    if (chunks_of(thread) % CHUNKS_A_TIME != 0)
        return;
    uint64_t now = monotonic_ns();
    if (thread->timed_ns > 0)
        thread->times_ns[thread->times++ % TIMES] = (double)(now - thread->timed_ns);
    thread->timed_ns = now;
}

static int compare_times(const void *left, const void *right) {
    double one = *(const double *)left, other = *(const double *)right;
    return (one > other) - (one < other);
}

/* Returns the duration of a chunk of this thread at the peak, in ns. */
static double chunk_ns_of(struct thread *thread) {
    const struct note *peak = &thread->seen[PEAK], *end = &thread->seen[MEASURED];
    if (thread->times == 0) /* the peak was very short, so the mean is used */
        return (double)(end->ns - peak->ns) / (double)(end->chunks - peak->chunks);
    size_t kept = thread->times < TIMES ? thread->times : TIMES;
    qsort(thread->times_ns, kept, sizeof thread->times_ns[0], compare_times);
    return thread->times_ns[kept / 2] / CHUNKS_A_TIME;
}

/* Sets the length of a thread's time slots after the peak rate of the thread was measured. */
static void set_pace(const struct state *state, struct thread *thread) {
    if (state->options->share == 100)
        return;
    thread->period_ns = (uint64_t)fmax(chunk_ns_of(thread) * 100 / state->options->share, 1);
    /* Threads begin at different times within a period, because threads that begin together would
     * make bursts. */
    uint64_t index = (uint64_t)thread->index, threads = (uint64_t)state->team.cpus.count;
    thread->slot_ns = monotonic_ns() + thread->period_ns * index / threads;
}

/* Waits until the next chunk may begin. Returns false if the measurement ends before the chunk
 * begins. */
static bool wait_for_slot(const struct state *state, struct thread *thread) {
    if (thread->period_ns == 0)
        return true;
    uint64_t now = monotonic_ns();
    if (now > thread->slot_ns)
        thread->slot_ns = now;
    while (now < thread->slot_ns) {
        if (stop_requested() || phase_of(state) == STOP)
            return false;
        spin_pause();
        now = monotonic_ns();
    }
    thread->slot_ns += thread->period_ns;
    return true;
}

static void end_sample(struct state *state, uint64_t end_ns) {
    uint64_t lines = progress_of(state).lines;
    print_sample(state->sample_ns, end_ns, "bytes",
                 bytes_of_lines(state, lines - state->sample_lines));
    state->sample_ns = end_ns;
    state->sample_lines = lines;
}

static void begin_peak(struct state *state) {
    for (int i = 0; i < state->team.cpus.count; i++)
        state->threads[i].chunks_before_peak = chunks_of(&state->threads[i]);
    set_phase(state, PEAK);
}

/* Returns whether every thread has moved chunks since the peak began. Without chunks, a thread has
 * no peak rate. So the peak lasts until this is true, even if it should be short and other programs
 * use most CPUs. */
static bool all_have_moved(const struct state *state) {
    for (int i = 0; i < state->team.cpus.count; i++)
        if (chunks_of(&state->threads[i]) < state->threads[i].chunks_before_peak + CHUNKS_A_LOOK)
            return false;
    return true;
}

static void begin_samples(struct state *state, uint64_t now) {
    struct progress progress = progress_of(state);
    state->sample_ns = now;
    state->sample_lines = state->first_lines = progress.lines;
    state->first_chunks = progress.chunks;
    state->limit_ns =
        now + (uint64_t)(state->options->stream_options.run_options.max_seconds * 1e9);
    set_phase(state, MEASURED);
}

/* The leader runs this function between two of its chunks. */
static void lead(struct state *state) {
    const struct traffic_options *options = state->options;
    const struct thread *leader = &state->threads[0];
    if (stop_requested()) {
        state->team.stopped_by = "signal";
        set_phase(state, STOP);
        return;
    }
    if (leader->period_ns == 0 && chunks_of(leader) % CHUNKS_A_LOOK != 0)
        return;
    uint64_t now = monotonic_ns();
    double ran = (double)(now - leader->seen[WARM_UP].ns) * 1e-9;
    enum phase phase = phase_of(state);
    if (phase == WARM_UP && ran >= options->peak_seconds / 2) {
        begin_peak(state);
    } else if (phase == PEAK && ran >= options->peak_seconds && all_have_moved(state)) {
        begin_samples(state, now);
    } else if (phase == MEASURED && now >= state->limit_ns) {
        state->team.stopped_by = "time";
        set_phase(state, STOP);
    } else if (phase == MEASURED && (double)(now - state->sample_ns) >=
                                        options->stream_options.run_options.sample_seconds * 1e9) {
        end_sample(state, now);
    }
}

static void note(struct thread *thread, enum phase phase) {
    drain_stores(); /* when this fence ends, all counted data have been moved */
    thread->seen[phase] = (struct note){monotonic_ns(), chunks_of(thread)};
}

static void move(struct state *state, struct thread *thread) {
    enum phase seen = WARM_UP;
    note(thread, seen);
    while (seen != STOP) {
        if (wait_for_slot(state, thread))
            run_chunk(state, thread);
        if (thread->index == 0)
            lead(state);
        enum phase phase = phase_of(state);
        if (phase == seen) {
            if (phase == PEAK)
                time_chunks(thread);
            continue;
        }
        note(thread, phase);
        seen = phase;
        if (phase == MEASURED)
            set_pace(state, thread);
    }
}

static void set_up_thread(void *self, int index) {
    const struct state *state = self;
    touch_part(&state->arrays, index);
}

static void print_ready(const void *self) {
    const struct state *state = self;
    const struct traffic_options *options = state->options;
    const struct traffic_kernel *kernel = options->kernel;
    const struct stream_options *stream_options = &options->stream_options;
    int moved = kernel->reads + kernel->writes;
    printf("{\"event\":\"ready\",\"kernel\":\"%s\",\"arrays\":%d,\"array_bytes\":%zu,"
           "\"reads_per_line\":%d,\"writes_per_line\":%d,\"read_share\":%.0f,"
           "\"bytes_per_pass\":%" PRIu64 ",\"chunk_bytes\":%" PRIu64 ",\"share\":%d,",
           kernel->name, stream_options->stream->arrays, stream_options->array_bytes, kernel->reads,
           kernel->writes, 100.0 * kernel->reads / moved,
           bytes_of_lines(state, stream_options->array_bytes / LINE_BYTES),
           bytes_of_lines(state, state->chunk_elements / LINE_DOUBLES), options->share);
    print_team(&state->team);
    printf("\"peak_seconds\":%g,", options->peak_seconds);
    print_run_options(&stream_options->run_options);
    print_build();
}

/* Returns the time between the first and the last thread that saw that a phase began, in ns. */
static uint64_t spread_ns(const struct state *state, enum phase phase) {
    uint64_t first = UINT64_MAX, last = 0;
    for (int i = 0; i < state->team.cpus.count; i++) {
        uint64_t ns = state->threads[i].seen[phase].ns;
        first = ns < first ? ns : first;
        last = ns > last ? ns : last;
    }
    return last - first;
}

/* Returns the bytes per second of all threads at full speed; 0 if a stop signal came before this
 * rate was measured. */
static double peak_rate(const struct state *state) {
    double sum = 0;
    for (int i = 0; i < state->team.cpus.count; i++) {
        const struct thread *thread = &state->threads[i];
        const struct note *peak = &thread->seen[PEAK], *end = &thread->seen[MEASURED];
        if (end->ns == 0)
            return 0;
        uint64_t lines =
            lines_in(state, thread, end->chunks) - lines_in(state, thread, peak->chunks);
        sum += (double)bytes_of_lines(state, lines) / (double)(end->ns - peak->ns) * 1e9;
    }
    return sum;
}

static void print_moved(const struct state *state) {
    struct progress end = progress_of(state);
    bool measured = state->sample_ns > 0;
    printf("\"warmup_chunks\":%" PRIu64 ",\"chunks\":%" PRIu64 ",\"bytes\":%" PRIu64
           ",\"start_spread_ns\":%" PRIu64 ",\"stop_spread_ns\":%" PRIu64 ",",
           measured ? state->first_chunks : end.chunks,
           measured ? end.chunks - state->first_chunks : 0,
           measured ? bytes_of_lines(state, end.lines - state->first_lines) : 0,
           spread_ns(state, WARM_UP), spread_ns(state, STOP));
    double peak = peak_rate(state);
    if (peak > 0)
        printf("\"peak_bytes_per_second\":%.0f,", peak);
    else
        printf("\"peak_bytes_per_second\":null,");
}

static void run_thread(void *self, int index) {
    struct state *state = self;
    struct thread *thread = &state->threads[index];
    thread->index = index;
    thread->member = &state->team.members[index];
    thread->part = &state->arrays.parts[index];
    thread->chunks_a_pass =
        (thread->part->elements + state->chunk_elements - 1) / state->chunk_elements;
    spin_barrier_wait(&state->start);
    move(state, thread);
    pthread_barrier_wait(&state->team.gate);
    if (index == 0 && state->sample_ns > 0) {
        /* Time when the last thread stopped, so that all moved bytes are counted. */
        uint64_t end_ns = 0;
        for (int i = 0; i < state->team.cpus.count; i++)
            if (state->threads[i].seen[STOP].ns > end_ns)
                end_ns = state->threads[i].seen[STOP].ns;
        end_sample(state, end_ns);
    }
    check_thread(state, thread);
}

int run_traffic(const struct traffic_options *options) {
    const struct stream_options *stream_options = &options->stream_options;
    int threads = stream_options->cpus.count, arrays = stream_options->stream->arrays;
    struct state state = {
        .options = options,
        .arrays = {.stream = stream_options->stream,
                   .bytes = stream_options->array_bytes,
                   .threads = threads},
        .chunk_elements = (size_t)(CHUNK_BYTES / LINE_BYTES / arrays) * LINE_DOUBLES,
        .threads = allocate_padded(threads, sizeof(struct thread)),
        .start.threads = (unsigned)threads,
    };
    map_arrays(&state.arrays, stream_options->run_options.placement);
    state.team = (struct team){
        .cpus = stream_options->cpus,
        .run_options = &stream_options->run_options,
        .mappings = &state.arrays.mapping,
        .mapping_count = 1,
        .arrays = &state.arrays,
    };
    run_team(&state.team, &(struct team_work){set_up_thread, print_ready, run_thread, &state});
    printf("{\"event\":\"done\",\"share\":%d,", options->share);
    if (state.team.start == START_GO)
        print_moved(&state);
    else
        printf("\"warmup_chunks\":0,\"chunks\":0,\"bytes\":0,\"start_spread_ns\":null,"
               "\"stop_spread_ns\":null,\"peak_bytes_per_second\":null,");
    free(state.threads);
    free_arrays(&state.arrays);
    return end_team(&state.team, stream_options->stream->name, "left");
}
