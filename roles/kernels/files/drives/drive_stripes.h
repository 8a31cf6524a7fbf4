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
        atomic_uint_fast64_t next; /* number of chunks of this drive that were taken so far */
    const char *path;
    int fd;         /* file descriptor, read-only, that bypasses the page cache */
    uint64_t bytes; /* size of the drive, or of the file used in its place */
    uint64_t rows;  /* number of chunks of the array on this drive */
};

struct stripes {
    struct drive *drives;
    int count;
    size_t chunk_bytes;
    uint64_t chunks; /* number of chunks of the array */
};

struct chunk {
    int drive;
    uint64_t row, offset; /* position of the chunk on the drive, in chunks and in bytes */
};

/* Adds a path as the next drive, or each line of a file as the path of one more drive. */
void add_drive(struct stripes *stripes, const char *path);
void add_drives_from(struct stripes *stripes, const char *list);

/* Opens the drives and distributes the array over them; if array_bytes is 0, the array is as large
 * as the drives can hold. The process ends with an error if a path is no drive or file, cannot be
 * read without the page cache or is too small, or if a chunk is no multiple of a drive's logical
 * blocks. */
void open_stripes(struct stripes *stripes, uint64_t array_bytes);
void close_stripes(struct stripes *stripes);

/* Returns the next chunk of a drive. All threads together get the chunks in their order on the
 * drive, and the first chunk again after the last chunk, so that each chunk is read once per
 * round. */
struct chunk take_chunk(const struct stripes *stripes, int drive);

#endif
