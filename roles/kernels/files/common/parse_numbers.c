/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/parse_numbers.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"

uint64_t parse_count(const char *option, const char *text, uint64_t most) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno == ERANGE || value > most)
        refuse("%s takes a whole number from 0 to %llu, not '%s'", option, (unsigned long long)most,
               text);
    return value;
}

double parse_seconds(const char *option, const char *text, double most) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value <= 0 || value > most)
        refuse("%s takes a number of seconds above 0 and up to %g, not '%s'", option, most, text);
    return value;
}

int64_t kernel_number(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    char line[256];
    int64_t number = -1;
    while (number < 0 && fgets(line, sizeof line, file) != NULL) {
        const char *found = strstr(line, key);
        if (found == NULL || sscanf(found + strlen(key), "%" SCNd64, &number) != 1)
            number = -1;
    }
    fclose(file);
    return number;
}
