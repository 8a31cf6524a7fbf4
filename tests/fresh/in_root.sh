#!/bin/sh
# Sets the last commit up in a bare Debian and tests it, as the README says: in_root.sh ROOT
set -eu

root=$1
# What this machine needs to reach package indexes: its name servers, certificates and pip's settings.
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    [ ! -e "$file" ] || install -D --mode=644 "$file" "$root$file"
done
for file in .pip/pip.conf .config/pip/pip.conf; do
    [ ! -e "$HOME/$file" ] || install -D --mode=644 "$HOME/$file" "$root/root/$file"
done
settings=$(env | grep -i -E '^(PIP|UV|SSL_CERT|REQUESTS_CA|CURL_CA)_|_PROXY=' || true)

git clone --quiet --no-hardlinks . "$root/root/chaosity"

step() { # COMMAND...: runs it in the clone; of this machine's environment it has the settings alone
    echo "== $*"
    began=$(date +%s)
    IFS='
'
    # shellcheck disable=SC2086 # a word for each line
    env --ignore-environment HOME=/root TERM=dumb CI="${CI:-}" $settings \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        chroot "$root" sh -ec 'cd /root/chaosity && "$@"' sh "$@"
    unset IFS
    echo "== $1 ${2:-}: $(($(date +%s) - began)) s"
}

step make provision
# The root has locks of its own, but shares the processors: nothing else measures on them meanwhile.
lock=/run/chaosity/measuring.lock
if [ -e "$lock" ]; then
    exec 9<"$lock"
    flock 9
fi
step make run BUDGET=1m
exec 9<&-
ls "$root"/root/chaosity/results/localhost/*/report.html
step make test-tools
# Every row of the role's table of packages, and tests that start what was installed.
step .venv/bin/pytest -m 'not thorough and not lab and not slurm' tests/fresh tests/unit/provisioning \
    tests/unit/topology tests/unit/export/test_export_hwloc.py tests/unit/runner/test_emulation.py \
    tests/unit/kernels/test_sum.py tests/unit/kernels/test_opencl.py tests/unit/kernels/test_aarch64.py \
    tests/unit/kernels/test_kernel_accesses.py tests/run_faults/test_killed_runner.py
