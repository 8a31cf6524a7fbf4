/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions that read numbers from the command line and from files of the kernel.
 */
#ifndef CHAOSITY_PARSE_NUMBERS_H
#define CHAOSITY_PARSE_NUMBERS_H

#include <stdint.h>

/* Upper limits of options: 1 PiB and one year. Larger values are mistakes, and would overflow. */
#define MOST_BYTES ((uint64_t)1 << 50)
#define MOST_SECONDS (366 * 86400.0)

/* Returns the number in the text of an option: a whole number from 0 to `most`, or seconds above 0
 * and up to `most`. Any other text ends the process with an error that names the option. */
uint64_t parse_count(const char *option, const char *text, uint64_t most);
double parse_seconds(const char *option, const char *text, double most);

/* Returns the number after `key` in a file below /proc or /sys (key "": the first number in the
 * file), or -1 if the file or the key is missing. */
int64_t kernel_number(const char *path, const char *key);

#endif
