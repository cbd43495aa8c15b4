#!/bin/sh
# Makes .venv from requirements-dev.lock, with pgmem itself editable; says what it does, and nothing when it is up to date.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=.venv
stamp=$venv/.complete # written last: a half-made venv has none

main() {
    up_to_date && exit 0
    check_python
    one_at_a_time
    up_to_date && exit 0
    make_venv
}

up_to_date() {
    [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint)" ]
}

fingerprint() {
    pwd -P # a venv does not survive a move
    cksum requirements-dev.lock pyproject.toml
}

check_python() {
    command -v "$python" >/dev/null || die "there is no $python: install Python 3.11 or newer, or name one: make PYTHON=python3.12"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "pgmem needs Python 3.11 or newer and $python is $("$python" -V 2>&1): name another: make PYTHON=python3.12"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv or ensurepip module: install it (on Debian and Ubuntu: apt-get install python3-venv)"
}

one_at_a_time() {
    command -v flock >/dev/null || return 0
    exec 9<requirements-dev.lock
    flock 9
}

make_venv() {
    if [ -e "$stamp" ] && [ -x "$venv/bin/python" ]; then
        echo "Bringing $venv up to date with requirements-dev.lock ..."
        rm "$stamp"
    else
        echo "Making $venv with $("$python" -V) from requirements-dev.lock ..."
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    echo "Installing the $(grep -c == requirements-dev.lock) packages of requirements-dev.lock: half a minute, or as long as their download takes ..."
    pip_install --require-hashes -r requirements-dev.lock
    echo "Installing pgmem itself ..."
    pip_install --no-index --no-deps --no-build-isolation -e .
    fingerprint >"$stamp"
}

pip_install() {
    "$venv/bin/python" -m pip -qq --disable-pip-version-check install "$@"
}

die() {
    echo "error: $*" >&2
    exit 1
}

main
