/* SPDX-License-Identifier: Apache-2.0
 *
 * An array that is striped over drives: chunk i lies on drive i mod k, at (i / k) * chunk.
 */
#ifndef CHAOSITY_STRIPES_H
#define CHAOSITY_STRIPES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/spin_barrier.h"

enum { MOST_DRIVES = 1024 };

struct drive {
    _Alignas(APART_BYTES) atomic_uint_fast64_t next; /* how many of its chunks were taken */
    const char *path;
    int fd;         /* for reading alone, past the page cache */
    uint64_t bytes; /* what the drive, or the file that stands in for it, holds */
    uint64_t rows;  /* its chunks of the array */
};

struct stripes {
    struct drive *drives;
    int count;
    size_t chunk_bytes;
    uint64_t chunks; /* of the whole array */
};

struct chunk {
    int drive;
    uint64_t row, offset; /* on the drive, in chunks and in bytes */
};

/* Takes a path, or every line of a file, as the next drive. */
void add_drive(struct stripes *stripes, const char *path);
void add_drives_from(struct stripes *stripes, const char *list);

/* Opens the drives and lays the array over them; with array_bytes 0 it is as large as they can
 * hold. Refuses what is no drive or file, cannot be read past the page cache, is too small, and a
 * chunk that is no multiple of a drive's blocks. */
void open_stripes(struct stripes *stripes, uint64_t array_bytes);
void close_stripes(struct stripes *stripes);

/* The next chunk of a drive for whoever asks: one after the other, and from the first one again
 * after the last. So each is read once a round, in the drive's order, however many threads ask. */
struct chunk take_chunk(const struct stripes *stripes, int drive);

#endif
