#!/bin/sh
# Makes the virtual environment .venv from a lock file: environment.sh LOCK
#
# Every package comes in the version and with the checksum that the lock names. The interpreter is
# the first suitable of the list below, or PYTHON. Debian and Ubuntu ship ensurepip in a package
# of its own; it is installed here where that needs no password, and named where it does.
set -eu

lock=$1
environment=.venv
minimum='3, 11'
candidates=${PYTHON:-python3 python3.13 python3.12 python3.11}

new_enough() { # INTERPRETER; a shim of a version manager may exist and still not run
    "$1" -c "import sys; sys.exit(sys.version_info < ($minimum))" 2>/dev/null
}

makes_environments() { # INTERPRETER
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

stop() { # SENTENCE...
    printf 'error: %s\n' "$@" >&2
    exit 2
}

install() { # PACKAGE; only where apt-get is there and root needs no password
    command -v apt-get >/dev/null || return 1
    as_root=
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        as_root='sudo -n'
    fi
    echo "Installing $1, which Debian ships apart from Python" >&2
    $as_root apt-get -qq update
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq install --no-install-recommends "$1" >/dev/null
}

suitable_interpreter() { # prints it
    found=
    for python in $candidates; do
        new_enough "$python" || continue
        found=${found:-$python}
        if makes_environments "$python"; then
            echo "$python"
            return
        fi
    done
    [ -n "$found" ] || stop "no Python 3.11 or newer among: $candidates." \
        'Install one (Debian: python3 python3-venv; Ubuntu 22.04: python3.11 python3.11-venv;' \
        'Red Hat: python3.11), or name one: make run PYTHON=/path/to/python3'
    package=$(basename "$found")-venv
    install "$package" || stop "$found cannot make virtual environments, since ensurepip is missing." \
        "Install it as root, then try again: apt-get install $package"
    makes_environments "$found" || stop "$found has no ensurepip even with $package installed." \
        'Name another interpreter: make run PYTHON=/path/to/python3'
    echo "$found"
}

# An environment whose interpreter has gone, or that was moved, is made anew.
if ! "$environment/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(suitable_interpreter)
    echo "Making $environment with $("$python" --version)"
    "$python" -m venv --clear "$environment"
fi
echo "Installing the packages of $lock (less than a minute the first time)"
# Bytecode is written below, in parallel.
pip() {
    "$environment/bin/python" -m pip --disable-pip-version-check --quiet \
        install --progress-bar off --no-compile --no-build-isolation "$@"
}
# uv takes a tenth of pip's processor time. It does not read pip's configuration, so it is told the
# index. Where a site's index lacks uv, or uv fails on it, pip installs everything.
uv() {
    index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$(
        "$environment/bin/python" -m pip config get global.index-url 2>/dev/null || true
    )}}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX="$index"; fi
    "$environment/bin/uv" --quiet pip install --python "$environment/bin/python" \
        --no-build-isolation "$@"
}
# What has to be built is built with the locked back end, not with the newest that an index offers.
for package in setuptools uv; do
    sed -n "/^$package==/,/[^\\\\]\$/p" "$lock" >"$environment/$package.txt"
done
pip --require-hashes --requirement "$environment/setuptools.txt"
if ! { pip --require-hashes --requirement "$environment/uv.txt" &&
    uv --require-hashes --requirement "$lock"; }; then
    echo 'uv could not install the packages, so pip does' >&2
    pip --require-hashes --use-pep517 --requirement "$lock"
fi
pip --no-deps --editable .
# Without bytecode the first start of each program would compile all modules that it imports. -q hides
# the names of files; some packages contain files for other versions of Python, which do not compile.
# Ansible's collections are 170 MB, of which a run imports a few files.
"$environment/bin/python" -m compileall -q -q -j 0 -x '/(tests?|ansible_collections)/' \
    "$environment"/lib/python3.*/site-packages workflow/chaosity || true
