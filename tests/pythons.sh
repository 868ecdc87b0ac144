#!/usr/bin/env bash
# Runs `make test` on each supported Python found on PATH or in pyenv, and on an old one (tests/old_python.sh) with the
# tests of its agents, each in its own virtual environment. PYTHONS="3.12 old" tests/pythons.sh runs only these.
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() { # prints the path of Python $1; checks its version because a pyenv shim may run another one
  local candidate
  if [[ $1 == old ]]; then
    tests/old_python.sh || true
    return
  fi
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
}

test_on() { # $1: version, $2: path; `if` suspends set -e
  make test VENV=".venv-$1" PYTHON="$2" || return
  [[ $1 != old ]] || .venv-old/bin/python -m pytest -m "slow and not thorough" tests/launch/agent_program \
    tests/integration/test_optional.py
}

passed=() failed=() missing=()
for version in ${PYTHONS:-3.10 3.11 3.12 3.13 old}; do
  python=$(find_python "$version")
  if [[ -z $python ]]; then
    missing+=("$version")
    continue
  fi
  echo "Python $version: $python"
  if test_on "$version" "$python"; then passed+=("$version"); else failed+=("$version"); fi
done

echo "passed: ${passed[*]:-none}; failed: ${failed[*]:-none}; not found: ${missing[*]:-none}"
((${#failed[@]} == 0 && ${#passed[@]} > 0)) && [[ -z ${PYTHONS:-} || ${#missing[@]} == 0 ]]
