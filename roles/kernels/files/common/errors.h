/* SPDX-License-Identifier: Apache-2.0
 *
 * Exit codes and error messages of all programs.
 */
#ifndef CHAOSITY_ERRORS_H
#define CHAOSITY_ERRORS_H

enum exit_code {
    EXIT_VALID = 0,   /* measured with a right result, or stopped before the measurement began */
    EXIT_INVALID = 1, /* measured with a wrong result, so that the numbers must not be used */
    EXIT_REFUSED = 2, /* the program cannot do what was requested; a sentence on stderr says why */
};

/* The name of the program, which is printed before every error. main() sets this name before
 * anything else. */
void set_program_name(const char *name);
const char *get_program_name(void);

/* Prints "NAME: SENTENCE" on stderr. The arguments are those of printf(). */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints "NAME: SENTENCE" on stderr and ends the process with EXIT_REFUSED. Any thread may call
 * this function. If several threads call it at the same time, only one sentence is printed. */
_Noreturn void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the process with an error if the lines printed so far could not be written, for example to a
 * full disk. Programs call this function after every line. (If nobody reads a pipe any more,
 * SIGPIPE ends the process.) */
void require_written(void);

#endif
