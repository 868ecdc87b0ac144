#!/usr/bin/env bash
# Runs `make check` and all tests of the table of Keras support on each supported TensorFlow, in its newest version,
# pre-releases too, each in its own virtual environment. PYTHON names the Python (python3).
# TENSORFLOWS="2.22" tests/tensorflows.sh runs only these versions.
set -euo pipefail
cd "$(dirname "$0")/.."

# Both without their dependencies, as in the README: tf_keras 2.21 asks for an older TensorFlow, and a pre-release of
# TensorFlow for a pre-release of Keras. The locked packages are the others.
check_on() { # fails with the first command that fails, although `if` suspends set -e
  local venv=".venv-tf-$1"
  local pip=("$venv/bin/python" -m pip --disable-pip-version-check)
  make install VENV="$venv" &&
    "${pip[@]}" install --quiet --no-deps --upgrade "tensorflow~=$1.0rc0" "tf_keras>=2.21,<=$1.99" &&
    "${pip[@]}" list | grep -E "^tensorflow +$1\." &&
    "${pip[@]}" list | grep -iE '^(tf_keras|keras) ' &&
    make check VENV="$venv" &&
    "$venv/bin/python" -m pytest tests/integration/test_keras_cells.py
}

passed=() failed=()
for version in ${TENSORFLOWS:-2.21 2.22}; do
  echo "TensorFlow $version"
  if check_on "$version"; then passed+=("$version"); else failed+=("$version"); fi
done

echo "passed: ${passed[*]:-none}; failed: ${failed[*]:-none}"
((${#failed[@]} == 0 && ${#passed[@]} > 0))
