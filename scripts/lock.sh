#!/bin/sh
# Writes requirements.lock (what an installed pgmem needs) and requirements-dev.lock (that, and the tools).
# Keeps the releases that are pinned now unless told otherwise: scripts/lock.sh --upgrade
set -eu
cd "$(dirname "$0")/.."

tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
"${PYTHON:-python3}" -m venv "$tool"
"$tool/bin/pip" -qq install uv==0.13.9

# The locks hold hashes of the public index only, whatever index this machine prefers.
unset UV_INDEX UV_INDEX_URL UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS

compile() {
    "$tool/bin/uv" pip compile --no-config --quiet --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command "make lock" --extra embedded pyproject.toml "$@"
}

compile -o requirements.lock "$@"
compile -o requirements-dev.lock --group dev --constraint requirements.lock "$@"
