/* SPDX-License-Identifier: Apache-2.0
 *
 * Thread t reads from node (t + turn) mod nodes. All threads compute the turn from one clock, so no
 * thread waits for another thread, and at any time, the threads are spread over all nodes as evenly
 * as possible. An interrupted thread falls behind by complete turns; if it skipped turns instead,
 * it could skip the same node each time. Each thread has a separate part of every node's buffer.
 * The thread reads this part in small chunks, reads the clock after each chunk, and continues after
 * the last chunk when the turn of the node comes again.
 *
 * Bytes and time are counted per node: a node's rate is its bytes divided by its time.
 */
#define _GNU_SOURCE
#include "streams/round_robin_reads.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/errors.h"
#include "common/monotonic_clock.h"
#include "common/placed_memory.h"
#include "common/spin_barrier.h"
#include "common/start_line_and_signals.h"
#include "streams/array_validation.h"
#include "streams/stream_arrays.h"
#include "streams/stream_options.h"
#include "streams/thread_team.h"

/* Bytes of a chunk, which a core reads in about ten microseconds. A clock reading takes less than 1
 * % of this time, and a turn of some milliseconds ends on time. */
enum { CHUNK_BYTES = 64 * 1024, CHUNK_ELEMENTS = CHUNK_BYTES / 8 };

/* The bytes that one thread has read from one node since the start, and their time; only this
 * thread writes them. */
struct node_progress {
    _Alignas(PADDING_BYTES) atomic_uint_fast64_t elements;
    atomic_uint_fast64_t ns;
    /* Sum of all elements that were read; it overflows in the same way as the expected sum. */
    uint64_t sum;
};

struct total {
    uint64_t bytes, ns;
};

struct state {
    const struct round_robin_options *options;
    const struct stream *stream;
    int nodes;
    struct arrays *buffers;   /* one buffer per node */
    struct mapping *mappings; /* mappings of these buffers */
    struct team team;
    struct node_progress *progress_list; /* progress of each thread, then of each node */
    struct spin_barrier start;
    uint64_t began_ns, turn_ns, limit_ns;
    uint64_t sample_ns, sample_turn; /* start of the current sample */
    struct total *sample;            /* totals of each node at the start of the current sample */
    uint64_t samples;
    _Alignas(PADDING_BYTES)
        atomic_bool stop; /* this variable has a separate cache line, since all threads read it */
};

static struct node_progress *progress_of(const struct state *state, int index, int node) {
    return &state->progress_list[(size_t)index * (size_t)state->nodes + (size_t)node];
}

static const struct part *part_on_node(const struct state *state, int index, int node) {
    return &state->buffers[node].parts[index];
}

static uint64_t count_of(const atomic_uint_fast64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* A plain store replaces an atomic addition, since only one thread writes the number. */
static void add(atomic_uint_fast64_t *counter, uint64_t amount) {
    atomic_store_explicit(counter, count_of(counter) + amount, memory_order_relaxed);
}

static uint64_t turn_at(const struct state *state, uint64_t now) {
    return (now - state->began_ns) / state->turn_ns;
}

/* Reads the next chunk of a part and returns its number of elements. */
static size_t read_chunk(const struct state *state, const struct part *part,
                         struct node_progress *progress) {
    uint64_t done = count_of(&progress->elements);
    struct piece piece = {.from = done % part->elements};
    size_t left = part->elements - piece.from;
    piece.count = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
    size_t counted = piece.count;
    uint64_t chunk = done / CHUNK_ELEMENTS;
    if (mutant_leaves_out_the_end(chunk))
        piece.count -= LINE_DOUBLES;
    if (mutant_skips(chunk))
        return counted;
    progress->sum += (uint64_t)run_piece(state->stream, part, &piece);
    if (MUTANT == CORRUPTED)
        part->array[0][piece.from] = mutated(part->array[0][piece.from], chunk);
    return counted;
}

static struct total total_of(const struct state *state, int node) {
    struct total total = {0};
    for (int i = 0; i < state->team.cpus.count; i++) {
        const struct node_progress *progress = progress_of(state, i, node);
        total.bytes += count_of(&progress->elements) * sizeof(double);
        total.ns += count_of(&progress->ns);
    }
    return total;
}

static void begin_sample(struct state *state, uint64_t now) {
    state->sample_ns = now;
    state->sample_turn = turn_at(state, now);
    for (int node = 0; node < state->nodes; node++)
        state->sample[node] = total_of(state, node);
}

static void print_by_node(const struct state *state, const char *name, const uint64_t *amount) {
    const int *index = state->options->run_options.placement.nodes.index;
    printf(",\"%s\":{", name);
    for (int node = 0; node < state->nodes; node++)
        printf("%s\"%d\":%" PRIu64, node > 0 ? "," : "", index[node], amount[node]);
    printf("}");
}

/* Returns whether the current sample is complete: the sample or the measurement has lasted long
 * enough, and the sample contains a complete round over the nodes and bytes of every node (the
 * round of an interrupted thread takes longer). */
static bool sample_is_due(const struct state *state, uint64_t now) {
    double lasted_ns = (double)(now - state->sample_ns);
    bool long_enough = lasted_ns >= state->options->run_options.sample_seconds * 1e9;
    if (turn_at(state, now) - state->sample_turn < (uint64_t)state->nodes ||
        (!long_enough && now < state->limit_ns))
        return false;
    for (int node = 0; node < state->nodes; node++)
        if (total_of(state, node).bytes == state->sample[node].bytes)
            return false;
    return true;
}

static void end_sample(struct state *state, uint64_t now) {
    uint64_t bytes[MOST_NODES], ns[MOST_NODES], all_bytes = 0;
    for (int node = 0; node < state->nodes; node++) {
        struct total total = total_of(state, node);
        bytes[node] = total.bytes - state->sample[node].bytes;
        ns[node] = total.ns - state->sample[node].ns;
        all_bytes += bytes[node];
    }
    printf("{\"event\":\"sample\",\"begin_ns\":%" PRIu64 ",\"end_ns\":%" PRIu64
           ",\"bytes\":%" PRIu64,
           state->sample_ns, now, all_bytes);
    print_by_node(state, "bytes_by_node", bytes);
    print_by_node(state, "ns_by_node", ns);
    printf("}\n");
    require_written();
    state->samples++;
}

static void stop(struct state *state, const char *by) {
    state->team.stopped_by = by;
    atomic_store_explicit(&state->stop, true, memory_order_relaxed);
}

/* The leader runs this function between two of its chunks; the function returns the present time.
 * The first round over the nodes fills TLBs, wakes cores and raises their clock. Samples begin
 * after the first round, and each sample contains complete rounds, so the last reads before the end
 * are in no sample. */
static uint64_t lead(struct state *state, uint64_t now) {
    bool measuring = state->sample_ns > 0;
    if (stop_requested()) {
        stop(state, "signal");
    } else if (measuring && sample_is_due(state, now)) {
        end_sample(state, now);
        begin_sample(state, now);
        if (now >= state->limit_ns)
            stop(state, "time");
    } else if (!measuring && turn_at(state, now) >= (uint64_t)state->nodes) {
        state->limit_ns = now + (uint64_t)(state->options->run_options.max_seconds * 1e9);
        begin_sample(state, now);
    } else
        return now;
    return monotonic_ns();
}

static void check_thread(const struct state *state, int index) {
    struct verdict *verdict = &state->team.members[index].verdict;
    for (int node = 0; node < state->nodes; node++) {
        const struct part *part = part_on_node(state, index, node);
        const struct node_progress *progress = progress_of(state, index, node);
        uint64_t elements = count_of(&progress->elements);
        struct piece rest = {.count = elements % part->elements};
        uint64_t sum = elements / part->elements * (uint64_t)part->read_sum +
                       (uint64_t)sum_of_piece(part, &rest);
        check_equal((double)progress->sum, (double)sum, verdict);
        check_sources(state->stream, part, verdict);
    }
}

static void run_thread(void *self, int index) {
    struct state *state = self;
    if (index == 0)
        state->began_ns = monotonic_ns();
    spin_barrier_wait(&state->start);
    uint64_t now = monotonic_ns(), turn = turn_at(state, now);
    int node = index % state->nodes;
    while (!atomic_load_explicit(&state->stop, memory_order_relaxed)) {
        if (turn_at(state, now) != turn) {
            turn = turn_at(state, now);
            node = (node + 1) % state->nodes;
        }
        struct node_progress *progress = progress_of(state, index, node);
        uint64_t begin_ns = now;
        size_t elements = read_chunk(state, part_on_node(state, index, node), progress);
        now = monotonic_ns();
        add(&progress->elements, elements);
        add(&progress->ns, now - begin_ns);
        if (index == 0)
            now = lead(state, now);
    }
    check_thread(state, index);
}

static void set_up_thread(void *self, int index) {
    const struct state *state = self;
    for (int node = 0; node < state->nodes; node++)
        touch_part(&state->buffers[node], index);
}

static void print_ready(const void *self) {
    const struct state *state = self;
    const struct round_robin_options *options = state->options;
    printf("{\"event\":\"ready\",\"kernel\":\"%s\",\"bytes\":%zu,\"turn_seconds\":%g,",
           state->stream->name, options->buffer_bytes, options->turn_seconds);
    print_team(&state->team);
    print_run_options(&options->run_options);
    print_build();
}

/* Maps one buffer per node, each bound to one node only. */
static void map_buffers(struct state *state) {
    const struct placement *all = &state->options->run_options.placement;
    for (int node = 0; node < state->nodes; node++) {
        struct placement placement = {
            .pages = all->pages,
            .nodes = {.index = &all->nodes.index[node], .count = 1},
        };
        state->buffers[node] = (struct arrays){
            .stream = state->stream,
            .bytes = state->options->buffer_bytes,
            .threads = state->options->cpus.count,
        };
        map_arrays(&state->buffers[node], placement);
        state->mappings[node] = state->buffers[node].mapping;
    }
}

static void free_state(struct state *state) {
    for (int node = 0; node < state->nodes; node++)
        free_arrays(&state->buffers[node]);
    free(state->buffers);
    free(state->mappings);
    free(state->progress_list);
    free(state->sample);
}

int run_round_robin_reads(const struct round_robin_options *options) {
    int nodes = options->run_options.placement.nodes.count, threads = options->cpus.count;
    struct state state = {
        .options = options,
        .stream = find_stream("read"),
        .nodes = nodes,
        .buffers = calloc((size_t)nodes, sizeof(struct arrays)),
        .mappings = calloc((size_t)nodes, sizeof(struct mapping)),
        .progress_list = allocate_padded(nodes * threads, sizeof(struct node_progress)),
        .sample = calloc((size_t)nodes, sizeof(struct total)),
        .start.threads = (unsigned)threads,
        .turn_ns = (uint64_t)(options->turn_seconds * 1e9) + 1,
    };
    if (state.buffers == NULL || state.mappings == NULL || state.sample == NULL)
        refuse("out of memory");
    map_buffers(&state);
    state.team = (struct team){
        .cpus = options->cpus,
        .run_options = &options->run_options,
        .mappings = state.mappings,
        .mapping_count = nodes,
        .arrays = state.buffers,
    };
    run_team(&state.team, &(struct team_work){set_up_thread, print_ready, run_thread, &state});
    printf("{\"event\":\"done\",\"samples\":%" PRIu64 ",", state.samples);
    int exit_code = end_team(&state.team, state.stream->name, "found");
    free_state(&state);
    return exit_code;
}
