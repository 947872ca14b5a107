#!/usr/bin/env bash
# install.sh PIP GROUP: install what the group core, test or docs needs, each package checked against its SHA-256.
# Hashes are known for Python 3.11 on Linux. Where a package cannot be had in a build whose hash is known, versions alone
# are pinned; a package whose hash is another than the known one ends the installation.
set -euo pipefail
cd "$(dirname "$0")/.."
pip=$1 group=$2 logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Files are compiled when they are first imported: of 20,000 most never are.
locked() {
    "$pip" install --quiet --no-compile --require-hashes --no-deps --requirement "requirements/$1.txt" 2>"$logs/$1" && return
    if grep --quiet "DO NOT MATCH THE HASHES" "$logs/$1"; then
        cat "$logs/$1" >&2
        exit 1
    fi
    return 1
}

# A build without CUDA where pip finds one: on Linux an index alone has builds for CUDA, of several gigabytes.
torch() {
    if locked cpu; then return; fi
    locked cuda
}

# PyTorch, which is half of all, is unpacked beside the others.
all() {
    if [ "$group" != core ]; then locked "$group"; return; fi
    torch & locked core || { wait $! || true; return 1; }
    wait $!
}

known=$("$pip" --version | grep --count "python 3.11") || true
if [ "$(uname)" = Linux ] && [ "$known" = 1 ] && all; then exit; fi
echo "Not every package of requirements/$group.txt can be had here: versions alone are pinned (constraints.txt)." >&2
extra=$([ "$group" = core ] || echo "[$group]")
"$pip" install --quiet --constraint constraints.txt hatchling editables
# With what the project needs pip installs the project, too: as it is by make, from where its source lies.
"$pip" install --quiet --constraint constraints.txt --no-build-isolation --editable ".$extra"
