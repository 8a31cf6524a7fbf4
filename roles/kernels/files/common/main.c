/* SPDX-License-Identifier: Apache-2.0
 *
 * The function main() of every program.
 */
#include "common/command_line.h"

int main(int argc, char *argv[]) {
    parse_command_line(argc, argv);
    return program.run();
}
