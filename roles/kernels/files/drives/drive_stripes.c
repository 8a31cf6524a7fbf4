/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "drives/drive_stripes.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/errors.h"

/* Block size of files if the kernel does not report the block size (before Linux 6.1). */
enum { USUAL_BLOCK_BYTES = 4096 };

void add_drive(struct stripes *stripes, const char *path) {
    if (stripes->count == MOST_DRIVES)
        refuse("--drive: more than %d drives", MOST_DRIVES);
    size_t bytes = ((size_t)stripes->count + 1) * sizeof(struct drive);
    struct drive *drives = aligned_alloc(PADDING_BYTES, bytes);
    char *name = strdup(path);
    if (drives == NULL || name == NULL)
        refuse("out of memory");
    memset(drives, 0, bytes);
    if (stripes->count > 0)
        memcpy(drives, stripes->drives, bytes - sizeof(struct drive));
    free(stripes->drives);
    stripes->drives = drives;
    stripes->drives[stripes->count].path = name;
    stripes->drives[stripes->count++].fd = -1;
}

void add_drives_from(struct stripes *stripes, const char *list) {
    FILE *file = fopen(list, "re");
    if (file == NULL)
        refuse("--drives-from: %s cannot be read: %s", list, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0')
            add_drive(stripes, line);
    }
    free(line);
    fclose(file);
}

static _Noreturn void refuse_direct(const char *path) {
    refuse(
        "%s cannot be read without the page cache (O_DIRECT): its file system does not support it",
        path);
}

/* Returns the bytes of which the offset of each read from a file must be a multiple. */
static unsigned file_block_bytes(const struct drive *drive) {
#ifdef STATX_DIOALIGN
    struct statx status;
    if (statx(drive->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
        (status.stx_mask & STATX_DIOALIGN) != 0) {
        if (status.stx_dio_offset_align == 0)
            refuse_direct(drive->path);
        return status.stx_dio_offset_align;
    }
#else
    (void)drive;
#endif
    return USUAL_BLOCK_BYTES;
}

/* Opens a drive and returns the size of its logical blocks in bytes. */
static unsigned open_drive(struct drive *drive) {
    struct stat status;
    if (stat(drive->path, &status) != 0)
        refuse("%s cannot be used: %s", drive->path, strerror(errno));
    if (!S_ISBLK(status.st_mode) && !S_ISREG(status.st_mode))
        refuse("%s is neither a block device nor a regular file", drive->path);
    drive->fd = open(drive->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (drive->fd < 0 && errno == EINVAL)
        refuse_direct(drive->path);
    if (drive->fd < 0)
        refuse("%s cannot be opened for reading: %s", drive->path, strerror(errno));
    if (S_ISREG(status.st_mode)) {
        drive->bytes = (uint64_t)status.st_size;
        return file_block_bytes(drive);
    }
    int block_bytes = 0;
    if (ioctl(drive->fd, BLKGETSIZE64, &drive->bytes) != 0 ||
        ioctl(drive->fd, BLKSSZGET, &block_bytes) != 0)
        refuse("%s does not report its size: %s", drive->path, strerror(errno));
    return (unsigned)block_bytes;
}

/* Returns the number of chunks of the array: as requested, or the capacity of the smallest drive
 * times the number of drives. */
static uint64_t chunks_of(const struct stripes *stripes, uint64_t array_bytes) {
    size_t chunk = stripes->chunk_bytes;
    if (array_bytes % chunk != 0)
        refuse("--array-bytes must be a multiple of --chunk-bytes (%zu) on drives, not %" PRIu64,
               chunk, array_bytes);
    uint64_t least = UINT64_MAX;
    for (int d = 0; d < stripes->count; d++)
        if (stripes->drives[d].bytes / chunk < least)
            least = stripes->drives[d].bytes / chunk;
    return array_bytes > 0 ? array_bytes / chunk : least * (uint64_t)stripes->count;
}

void open_stripes(struct stripes *stripes, uint64_t array_bytes) {
    size_t chunk = stripes->chunk_bytes;
    for (int d = 0; d < stripes->count; d++) {
        unsigned block_bytes = open_drive(&stripes->drives[d]);
        if (chunk % block_bytes != 0)
            refuse("--chunk-bytes must be a multiple of %u, the logical blocks of %s, not %zu",
                   block_bytes, stripes->drives[d].path, chunk);
    }
    stripes->chunks = chunks_of(stripes, array_bytes);
    uint64_t count = (uint64_t)stripes->count;
    if (stripes->chunks < count)
        refuse("the drive set is too small for the array, or the array for the drive set: each of "
               "%d drives needs a chunk of %zu bytes",
               stripes->count, chunk);
    for (int d = 0; d < stripes->count; d++) {
        struct drive *drive = &stripes->drives[d];
        drive->rows = (stripes->chunks - (uint64_t)d + count - 1) / count;
        if (drive->rows > drive->bytes / chunk)
            refuse("the drive set is too small for the array: %s holds %" PRIu64
                   " bytes, and its part "
                   "of %" PRIu64 " is %" PRIu64 "; use more drives or less --array-bytes",
                   drive->path, drive->bytes, array_bytes, drive->rows * chunk);
    }
}

void close_stripes(struct stripes *stripes) {
    for (int d = 0; d < stripes->count; d++) {
        close(stripes->drives[d].fd);
        free((void *)(uintptr_t)stripes->drives[d].path);
    }
    free(stripes->drives);
    *stripes = (struct stripes){0};
}

struct chunk take_chunk(const struct stripes *stripes, int drive) {
    struct drive *from = &stripes->drives[drive];
    uint64_t taken = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
    uint64_t row = taken % from->rows;
    return (struct chunk){.drive = drive, .row = row, .offset = row * stripes->chunk_bytes};
}
