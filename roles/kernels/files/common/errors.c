/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "common/errors.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static const char *program_name = "chaosity";

void set_program_name(const char *name) { program_name = name; }
const char *get_program_name(void) { return program_name; }

static void complain_with(const char *format, va_list arguments) {
    char sentence[1024];
    vsnprintf(sentence, sizeof sentence, format, arguments);
    fprintf(stderr, "%s: %s\n", program_name, sentence);
}

void complain(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    complain_with(format, arguments);
    va_end(arguments);
}

_Noreturn void refuse(const char *format, ...) {
    static atomic_flag refusing = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&refusing))
        pause(); /* another thread is already ending the process */
    va_list arguments;
    va_start(arguments, format);
    complain_with(format, arguments);
    va_end(arguments);
    /* _exit() instead of exit(), since other threads are running and need no clean-up. */
    _exit(EXIT_REFUSED);
}

void require_written(void) {
    if (fflush(stdout) != 0 || ferror(stdout))
        refuse("the results could not be written to the standard output");
}
