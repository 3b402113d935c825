# Sourced by deploy/run and deploy/test, which set `root`: finds a Python, hands over to deploy/environment.py.

# environment run|test: bring $root/.venv up to date, or say what is missing and exit 1.
environment() {
    here=$root/.venv/bin/python
    if ! { [ -x "$here" ] && "$here" -I "$root/deploy/environment.py" "$root" "$1" --check 2>/dev/null; }; then
        python=$(find_python) || exit 1
        "$python" -I "$root/deploy/environment.py" "$root" "$1" || exit 1
    fi
}

# Print the newest Python that can make a virtual environment; complain on standard error when there is none.
find_python() {
    lacking=
    if [ -n "${SLUICE_PYTHON:-}" ]; then
        set -- "$SLUICE_PYTHON"
    else
        set -- python3.14 python3.13 python3.12 python3.11 python3
    fi
    for candidate in "$@"; do
        # Asked by running it: a name on PATH may be a stub for a version that isn't there.
        version=$("$candidate" -I -c 'import sys
if sys.version_info >= (3, 11): print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        [ -n "$version" ] || continue
        if "$candidate" -I -c 'import ensurepip, venv' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return 0
        fi
        lacking=${lacking:-$version}
    done
    if [ -n "$lacking" ]; then
        echo "sluice: Python $lacking is here, but not its venv module. Install it (on Debian and Ubuntu:" >&2
        echo "  apt-get install python$lacking-venv) and start again." >&2
    elif [ -n "${SLUICE_PYTHON:-}" ]; then
        echo "sluice: SLUICE_PYTHON=$SLUICE_PYTHON is no Python 3.11 or newer." >&2
    else
        echo "sluice: Python 3.11 or newer is needed, and was not found on PATH. Install it (on Debian and" >&2
        echo "  Ubuntu: apt-get install python3 python3-venv), or name it: SLUICE_PYTHON=/path/to/python3" >&2
    fi
    return 1
}
