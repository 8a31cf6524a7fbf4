/* Takes the chunks of many striped arrays by several threads at once and counts each: prints how
 * many arrays there were and how many of them were not read exactly so often as rounds ended, give
 * or take the round that is on its way. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "drives/drive_stripes.h"

enum { MOST_ROWS = 64, MOST_TAKERS = 4 };

struct taker {
    struct stripes *stripes;
    int drive, takes;
    unsigned seen[MOST_ROWS];
    int astray; /* chunks that are not where the layout says */
};

static void *take(void *argument) {
    struct taker *taker = argument;
    for (int i = 0; i < taker->takes; i++) {
        struct chunk chunk = take_chunk(taker->stripes, taker->drive);
        if (chunk.offset != chunk.row * taker->stripes->chunk_bytes ||
            chunk.drive != taker->drive || chunk.row >= taker->stripes->drives[taker->drive].rows)
            taker->astray++;
        else
            taker->seen[chunk.row]++;
    }
    return NULL;
}

/* Whether a drive's chunks were taken in whole rounds and a part of one, by so many at once. */
static int fair(struct stripes *stripes, int drive, int takers, int takes) {
    struct taker all[MOST_TAKERS] = {0};
    pthread_t threads[MOST_TAKERS];
    for (int t = 0; t < takers; t++) {
        all[t] = (struct taker){.stripes = stripes, .drive = drive, .takes = takes};
        pthread_create(&threads[t], NULL, take, &all[t]);
    }
    unsigned seen[MOST_ROWS] = {0};
    int astray = 0;
    for (int t = 0; t < takers; t++) {
        pthread_join(threads[t], NULL);
        astray += all[t].astray;
        for (int row = 0; row < MOST_ROWS; row++)
            seen[row] += all[t].seen[row];
    }
    unsigned rows = (unsigned)stripes->drives[drive].rows, taken = (unsigned)(takers * takes);
    for (unsigned row = 0; row < rows; row++)
        if (seen[row] != taken / rows + (row < taken % rows ? 1 : 0))
            return 0;
    return astray == 0;
}

int main(void) {
    unsigned seed = 1;
    int tried = 0, wrong = 0;
    char name[] = "/var/tmp/chaosity-stripes-XXXXXX";
    int file = mkstemp(name);
    if (file < 0 || ftruncate(file, MOST_ROWS * 65536l) != 0)
        return 2;
    for (; tried < 1500; tried++) {
        struct stripes stripes = {.chunk_bytes = 4096u << rand_r(&seed) % 5};
        int count = 1 + rand_r(&seed) % 7, takers = 1 + rand_r(&seed) % MOST_TAKERS;
        for (int d = 0; d < count; d++)
            add_drive(&stripes, name);
        uint64_t chunks = (uint64_t)count + (uint64_t)rand_r(&seed) % (uint64_t)(60 * count);
        open_stripes(&stripes, chunks * stripes.chunk_bytes);
        uint64_t rows = 0;
        int good = 1;
        for (int d = 0; d < count; d++) {
            /* chunk i lies on drive i mod k: those of drive d are d, d + k, d + 2 k, ... */
            uint64_t own = 0;
            for (uint64_t i = (uint64_t)d; i < chunks; i += (uint64_t)count)
                own++;
            rows += stripes.drives[d].rows;
            good &= stripes.drives[d].rows == own;
            good &= fair(&stripes, d, takers, 1 + rand_r(&seed) % 40);
        }
        wrong += !(good && rows == chunks && stripes.chunks == chunks);
        close_stripes(&stripes);
    }
    unlink(name);
    close(file);
    printf("tried %d wrong %d\n", tried, wrong);
    return 0;
}
