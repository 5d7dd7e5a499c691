#!/usr/bin/env bash
# Makes .venv with everything that `make demo` and `make test` need; `setup.sh spark` adds the Spark parts.
# Run by the Makefile, which skips it while pyproject.toml and constraints.txt haven't changed.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3.11}
venv=.venv

# apt_install WHAT PACKAGE...: installs Debian packages if it may, else says what is missing.
apt_install() {
    local what=$1
    shift
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing $what: apt-get install $*"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq </dev/null || true # old package lists may do
        apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
    else
        echo "setup: $what is missing. Install it, on Debian with: sudo apt-get install $*" >&2
        exit 1
    fi
}

if ! command -v "$python" >/dev/null; then
    apt_install "Python 3.11" python3.11 python3.11-venv
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: Shoal needs Python 3.11 or later, $python is $("$python" --version). Say: make PYTHON=..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install "venv support of Python" "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
fi

# A venv that was moved or half made is made anew.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

extras=dev
if [ "${1:-}" = spark ]; then
    extras=dev,spark
    if ! java -version 2>&1 | grep -Eq 'version "(1[7-9]|2[0-9])'; then
        apt_install "Java 17" openjdk-17-jre-headless
    fi
fi
echo "setup: installing what Shoal needs into $venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]" </dev/null
