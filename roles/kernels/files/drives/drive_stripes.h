/* SPDX-License-Identifier: Apache-2.0
 *
 * An array striped over k drives: chunk i lies on drive i mod k at offset (i / k) * chunk.
 */
#ifndef CHAOSITY_DRIVE_STRIPES_H
#define CHAOSITY_DRIVE_STRIPES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/spin_barrier.h"

enum { MOST_DRIVES = 1024 };

struct drive {
    _Alignas(PADDING_BYTES)
        atomic_uint_fast64_t next; /* number of its chunks that were taken so far */
    const char *path;
    int fd;         /* read-only, bypasses the page cache */
    uint64_t bytes; /* size of the drive, or of the file used in its place */
    uint64_t rows;  /* number of the array's chunks on it */
};

struct stripes {
    struct drive *drives;
    int count;
    size_t chunk_bytes;
    uint64_t chunks; /* of the whole array */
};

struct chunk {
    int drive;
    uint64_t row, offset; /* position on the drive, in chunks and in bytes */
};

/* Adds a path, or the path in each line of a file, as the next drive. */
void add_drive(struct stripes *stripes, const char *path);
void add_drives_from(struct stripes *stripes, const char *list);

/* Opens the drives and distributes the array over them; with array_bytes 0, the array is as large
 * as the drives can hold. Refuses a path that is not a drive or file, cannot be read without the
 * page cache or is too small, and a chunk that is not a multiple of a drive's logical blocks. */
void open_stripes(struct stripes *stripes, uint64_t array_bytes);
void close_stripes(struct stripes *stripes);

/* The next chunk of a drive. All threads together get the chunks in the drive's order, and after
 * the last chunk the first again, so each chunk is read once per round. */
struct chunk take_chunk(const struct stripes *stripes, int drive);

#endif
