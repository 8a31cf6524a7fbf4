/* SPDX-License-Identifier: Apache-2.0
 *
 * The version of a program. This file is compiled once for each program; the Makefile defines the
 * texts of both constants.
 */
#include "common/command_line.h"

const char program_version[] = VERSION;
const char compiler_version[] = COMPILER;
