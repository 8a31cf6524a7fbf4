/* SPDX-License-Identifier: Apache-2.0 */
#include "streams/array_validation.h"

#include <stdbool.h>

/* Returns the mark of a pass, which is larger than all pattern values, and different from pass to
 * pass. */
static double mark_of(uint64_t pass) { return 64 + (double)(pass % CYCLE); }

/* The expected content of the written array is constant + of_b * b + of_c * c. */
struct linear_form {
    double constant, of_b, of_c;
};

static struct linear_form expected_form(enum operation operation, double scalar) {
    switch (operation) {
    case FILL: return (struct linear_form){scalar, 0, 0};
    case COPY: return (struct linear_form){0, 1, 0};
    case SCALE: return (struct linear_form){0, scalar, 0};
    case ADD: return (struct linear_form){0, 1, 1};
    case TRIAD: return (struct linear_form){0, 1, scalar};
    case READ: break; /* the kernel `read` writes nothing */
    }
    return (struct linear_form){never_written, 0, 0};
}

static inline double value_of(struct linear_form form, double b, double c) {
    return form.constant + form.of_b * b + form.of_c * c;
}

/* Returns the array that contains the marks: the first array that is read (fill reads no array). */
static int marked_array(enum operation operation) { return operation == READ ? 0 : 1; }

enum { MARKS = 2 };

static void mark_positions(const struct part *part, uint64_t pass, size_t position[MARKS]) {
    position[0] = part->elements - 1;
    position[1] = pass * 2654435761u % (part->elements - 1);
}

void write_contents(const struct stream *stream, struct part *part, int array, size_t from,
                    size_t count) {
    double *to = part->array[array] + from;
    uint64_t index = part->first + from, sum = 0;
    if (array == 0 && stream->operation != READ) {
        for (size_t i = 0; i < count; i++)
            to[i] = never_written;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int value = pattern(array, index + i);
        to[i] = value;
        sum += (unsigned)value;
    }
    if (array == 0)
        part->read_sum += (double)sum;
}

static double run_stream(const struct stream *stream, const struct part *part, uint64_t pass) {
    size_t elements = part->elements;
    if (mutant_leaves_out_the_end(pass))
        elements -= LINE_DOUBLES;
    if (mutant_skips(pass))
        return 0;
    double sum = stream->run[chosen_isa](part->array[0], part->array[1], part->array[2], elements,
                                         scalar_of(pass));
    if (stream->non_temporal)
        drain_stores(); /* data only count as moved when they are in memory */
    if (MUTANT == CORRUPTED)
        part->array[0][elements / 2] = mutated(part->array[0][elements / 2], pass);
    return sum;
}

void run_pass(const struct stream *stream, const struct part *part, uint64_t pass,
              struct verdict *verdict) {
    enum operation operation = stream->operation;
    const double *a = part->array[0], *c = part->array[2];
    double *marked = operation == FILL ? NULL : part->array[marked_array(operation)];
    double mark = mark_of(pass), sum_wanted = part->read_sum;
    size_t position[MARKS];
    mark_positions(part, pass, position);
    for (int i = 0; marked != NULL && i < MARKS; i++) {
        sum_wanted += mark - marked[position[i]];
        marked[position[i]] = mark;
    }

    double sum = run_stream(stream, part, pass);

    if (operation == READ)
        check_equal(sum, sum_wanted, verdict);
    struct linear_form form = expected_form(operation, scalar_of(pass));
    for (int i = 0; i < MARKS; i++) {
        size_t at = position[i];
        if (operation != READ)
            check_equal(a[at], value_of(form, mark, c == NULL ? 0 : c[at]), verdict);
        if (marked != NULL)
            marked[at] = pattern(marked_array(operation), part->first + at);
    }
}

/* Compares a piece of one array with constant + of_b * pattern of b + of_c * pattern of c, where
 * the patterns begin at element `source`. The first loop only counts wrong values, so that
 * compilers can use vector instructions; the second loop records each wrong value. */
static void check_array(const struct part *part, int array, const struct piece *piece,
                        struct linear_form form, int b, int c, struct verdict *verdict) {
    const double *values = part->array[array] + piece->from;
    uint64_t wrong = 0, first = part->first + piece->source;
    for (size_t i = 0; i < piece->count; i++)
        wrong += values[i] != value_of(form, pattern(b, first + i), pattern(c, first + i));
    for (size_t i = 0; wrong > 0 && i < piece->count; i++)
        check_equal(values[i], value_of(form, pattern(b, first + i), pattern(c, first + i)),
                    verdict);
}

void check_sources(const struct stream *stream, const struct part *part, struct verdict *verdict) {
    /* The expected content is 1 * b, where b is the array itself. */
    const struct linear_form as_written = {0, 1, 0};
    const struct piece whole = {.count = part->elements};
    for (int array = stream->operation == READ ? 0 : 1; array < stream->arrays; array++)
        check_array(part, array, &whole, as_written, array, array, verdict);
}

void check_contents(const struct stream *stream, const struct part *part, uint64_t passes,
                    struct verdict *verdict) {
    check_sources(stream, part, verdict);
    if (stream->operation == READ)
        return;
    const struct piece whole = {.count = part->elements};
    struct linear_form form = {never_written, 0, 0};
    if (passes > 0) {
        form = expected_form(stream->operation, scalar_of(passes - 1));
        /* Elements with marks of the last pass contain results of the marks, which were checked
         * after this pass. The results of marks are replaced by the results without marks. */
        size_t position[MARKS];
        mark_positions(part, passes - 1, position);
        for (int i = 0; i < MARKS; i++) {
            uint64_t index = part->first + position[i];
            part->array[0][position[i]] = value_of(form, pattern(1, index), pattern(2, index));
        }
    }
    check_array(part, 0, &whole, form, 1, 2, verdict);
}

double run_piece(const struct stream *stream, const struct part *part, const struct piece *piece) {
    const double *b = part->array[1], *c = part->array[2];
    return stream->run[chosen_isa](part->array[0] + piece->from,
                                   b == NULL ? NULL : b + piece->source,
                                   c == NULL ? NULL : c + piece->source, piece->count,
                                   scalar_of(piece->visit));
}

static struct linear_form expected_form_of_piece(const struct stream *stream,
                                                 const struct piece *piece) {
    if (piece->visit == NEVER)
        return (struct linear_form){never_written, 0, 0};
    return expected_form(stream->operation, scalar_of(piece->visit));
}

void check_piece(const struct stream *stream, const struct part *part, const struct piece *piece,
                 struct verdict *verdict) {
    check_array(part, 0, piece, expected_form_of_piece(stream, piece), 1, 2, verdict);
}

void check_element(const struct stream *stream, const struct part *part, const struct piece *piece,
                   size_t at, struct verdict *verdict) {
    uint64_t index = part->first + piece->source + at;
    struct linear_form form = expected_form_of_piece(stream, piece);
    check_equal(part->array[0][piece->from + at],
                value_of(form, pattern(1, index), pattern(2, index)), verdict);
}

double sum_of_piece(const struct part *part, const struct piece *piece) {
    uint64_t sum = 0;
    for (size_t i = 0; i < piece->count; i++)
        sum += (unsigned)pattern(0, part->first + piece->from + i);
    return (double)sum;
}
