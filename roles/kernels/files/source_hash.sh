#!/bin/sh
# Prints the first 12 hexadecimal digits of a hash of sources: source_hash.sh FLAGS DEPENDENCY_FILE...
# SPDX-License-Identifier: Apache-2.0
#
# Each DEPENDENCY_FILE is a compiler's list of what an object was made of (-MMD). Comments and white
# space do not count. System headers are not in the lists; the compiler's version stands for them.
set -eu
export LC_ALL=C
flags=$1
shift
sources=$(cat "$@" | tr -s ' \\:' '\n' | grep -E '\.(c|cpp|h|hpp)$' | sort -u)
{
    echo "$flags"
    # shellcheck disable=SC2086 # one word is one file: no source has a space in its name
    cat $sources | sed -e ':join' -e 'N' -e '$!b join' -e 's,/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/,,g' | tr -d ' \t\n'
} | sha256sum | cut -c 1-12
