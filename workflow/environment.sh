#!/bin/sh
# Makes the virtual environment .venv with the packages of uv.lock: environment.sh [--extra NAME]...
#
# Every package comes in the version and with the checksum that the lock names. The interpreter is
# the first suitable of the list below, or PYTHON. Debian and Ubuntu ship ensurepip in a package
# of its own; it is installed here where that needs no password, and named where it does.
set -eu

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
echo 'Installing the packages of uv.lock (less than a minute the first time)'
# Bytecode is written below, in parallel.
pip() {
    "$environment/bin/python" -m pip --disable-pip-version-check --quiet \
        install --progress-bar off --no-compile --no-build-isolation "$@"
}
# uv installs in a tenth of pip's processor time. `uv sync` would fetch each file from the address in
# the lock; installed by name and checksum, it comes from the index that this site uses. uv does not
# read pip's configuration, so it is told that index.
uv() {
    index=${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$(
        "$environment/bin/python" -m pip config get global.index-url 2>/dev/null || true
    )}}
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX="$index"; fi
    "$environment/bin/uv" --quiet "$@"
}
# uv reads the lock, and what has to be built is built with the locked back end, not with the newest
# that an index offers. So both are installed first.
"$environment/bin/python" - >"$environment/first.txt" <<'END'
import tomllib

for package in tomllib.load(open("uv.lock", "rb"))["package"]:
    if package["name"] in ("setuptools", "uv"):
        files = [*package["wheels"], package["sdist"]]
        print(f"{package['name']}=={package['version']}", *(f"--hash={f['hash']}" for f in files))
END
pip --require-hashes --requirement "$environment/first.txt"
uv export --frozen --no-emit-project --no-annotate --no-header "$@" >"$environment/packages.txt"
if ! uv pip install --python "$environment/bin/python" --no-build-isolation --require-hashes \
    --requirement "$environment/packages.txt"; then
    echo 'uv could not install the packages, so pip does' >&2
    pip --require-hashes --use-pep517 --requirement "$environment/packages.txt"
fi
pip --no-deps --editable .
# Without bytecode the first start of each program would compile all modules that it imports. -q hides
# the names of files; some packages contain files for other versions of Python, which do not compile.
# Ansible's collections are 170 MB, of which a run imports a few files.
"$environment/bin/python" -m compileall -q -q -j 0 -x '/(tests?|ansible_collections)/' \
    "$environment"/lib/python3.*/site-packages workflow/chaosity || true
