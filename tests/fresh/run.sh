#!/bin/sh
# Tests the project in a bare Debian: run.sh RELEASE...
#
# For each RELEASE (bookworm, trixie) mmdebstrap makes a root file system of the smallest Debian below
# build/fresh, in_root.sh sets the last commit up in it and tests it, and the root is removed. Packages
# come from the mirrors of this machine's apt, with the settings of its apt and pip. All processes and
# mounts are in namespaces of their own, which end with their first process, also after Ctrl-C. Nothing
# outside build/fresh changes, except that mmdebstrap is installed if it is missing.
set -eu

stop() { # SENTENCE
    echo "error: $1" >&2
    exit 2
}

[ "$(id -u)" -eq 0 ] || stop 'make fresh-test makes a root file system, which needs root: sudo make fresh-test'
command -v apt-get >/dev/null || stop 'make fresh-test needs apt-get, as on Debian and Ubuntu'
unshare --mount --pid --fork true || stop 'make fresh-test needs the right to mount, which containers lack'

folder=$PWD/build/fresh
mkdir -p build
exec 8>build/fresh.lock
flock --nonblock 8 || stop "another make fresh-test runs in $PWD"
child=
remove() {
    if [ -n "$child" ]; then
        # The first process of the namespaces; unshare ends when all others have ended with it.
        { xargs --no-run-if-empty kill -KILL <"/proc/$child/task/$child/children"; } 2>/dev/null || true
        wait "$child" || true
    fi
    rm -rf "$folder"
}
trap remove EXIT
trap 'exit 130' HUP INT TERM
rm -rf "$folder"
mkdir -p "$folder"

# The lists of packages name the mirrors.
apt-get -qq update
command -v mmdebstrap >/dev/null || {
    echo 'Installing mmdebstrap, which makes the root file system' >&2
    DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends mmdebstrap >/dev/null
}
apt-config dump Acquire | grep --invert-match IndexTargets >"$folder/apt.conf"
# shellcheck source=/dev/null
. /etc/os-release

for release; do
    # shellcheck disable=SC2016 # apt's variables
    apt-get indextargets --format 'deb $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
        sed "s/ $VERSION_CODENAME/ $release/" | sort --unique >"$folder/sources.list"
    [ -s "$folder/sources.list" ] || stop 'apt of this machine has no mirror of Debian'
    echo "== $release: a bare Debian"
    began=$(date +%s)
    # shellcheck disable=SC2016 # of the inner shell, which has a /dev/shm of its own
    TMPDIR=$folder unshare --mount --pid --fork --kill-child sh -ec '
        mount -t tmpfs tmpfs /dev/shm
        mmdebstrap --quiet --mode=root --variant=minbase --format=null --aptopt="$1/apt.conf" \
            --dpkgopt=force-unsafe-io --include=ca-certificates,git,make,python3 --skip=check/qemu \
            --customize-hook=tests/fresh/in_root.sh "$2" /dev/null "$1/sources.list"
        exit
    ' sh "$folder" "$release" </dev/null &
    child=$!
    wait "$child"
    child=
    echo "== $release: passed in $(($(date +%s) - began)) s"
done
