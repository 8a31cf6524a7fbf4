/* SPDX-License-Identifier: Apache-2.0
 *
 * Exit codes and error messages of all programs.
 */
#ifndef CHAOSITY_ERRORS_H
#define CHAOSITY_ERRORS_H

enum exit_code {
    EXIT_VALID = 0,   /* measured with a right result, or stopped before anything ran */
    EXIT_INVALID = 1, /* measured with a wrong result: the numbers must not be used */
    EXIT_REFUSED = 2, /* cannot do what was requested; one sentence on stderr gives the reason */
};

/* The name that is printed before every error. main() sets it first. */
void set_program_name(const char *name);
const char *get_program_name(void);

/* Prints "NAME: SENTENCE" on stderr. The arguments are those of printf(). */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Complains and ends the process with EXIT_REFUSED. Any thread may call it. When several threads
 * call it at the same time, one sentence is printed. */
_Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Refuses when the lines printed so far could not be written, for example to a full disk. Programs
 * call this function after every line. (When the reader of a pipe is gone, SIGPIPE ends the
 * process.) */
void require_written(void);

#endif
