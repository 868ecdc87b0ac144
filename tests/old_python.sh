#!/usr/bin/env bash
# Builds the CPython of this Debian or Ubuntu in build/old-python/ as if its C library were glibc 2.12, like the oldest
# of conda: without the functions that came later. Prints its path; exits with 1 and the reason if it cannot be built.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/old-python
python=$folder/bin/python3

fail() {
  echo "old Python: $1" >&2
  exit 1
}

download() { # downloads the source of package $1 into this folder; apt's own settings need not have sources
  mkdir -p parts lists/partial
  find /etc/apt/sources.list /etc/apt/sources.list.d \( -name '*.list' -o -name '*.sources' \) -exec cp {} parts \;
  sed -i 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' parts/*
  local apt=(apt-get -q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$PWD/parts" -o Dir::State::Lists="$PWD/lists")
  "${apt[@]}" update # fails if any of them does not answer
  "${apt[@]}" source --download-only --tar-only "$1"
}

build() { # fails with the first command that fails, although `||` suspends set -e
  local without=() function
  for function in close_range copy_file_range explicit_bzero getentropy getrandom memfd_create preadv2 prlimit pwritev2 \
    sem_clockwait; do
    without+=("ac_cv_func_$function=no")
  done
  tar -xf python*.orig.tar.* --strip-components 1 &&
    ./configure --quiet --prefix="$folder" --without-ensurepip --disable-test-modules "${without[@]}" \
      ac_cv_getrandom_syscall=no &&
    make -s OPT=-O1 CFLAGS_NODIST="-include $OLDPWD/tests/old_glibc.h" install # -O1: it compiles faster
}

if [[ ! -x $python ]]; then
  for program in apt-get gcc make; do command -v $program >/dev/null || fail "building it needs $program"; done
  source=$(readlink -f /usr/bin/python3) || fail "building it needs the distribution's python3, whose source it is"
  mkdir -p "$folder/source"
  cd "$folder/source"
  echo "building an old Python in $folder, which takes some minutes" >&2
  download "${source##*/}" >download.log 2>&1 || fail "apt-get cannot download its source: $folder/source/download.log"
  build >build.log 2>&1 || fail "it cannot be built: $folder/source/build.log"
fi
"$python" -c 'import bz2, ctypes, lzma, sqlite3, ssl, zlib' || fail "it needs the headers: apt-get install libbz2-dev libffi-dev liblzma-dev libsqlite3-dev libssl-dev zlib1g-dev; then remove $folder"
"$python" - <<'CHECK' || fail "it has functions that came later"
import os, resource, signal, socket, sys, time
names = {os: "copy_file_range getrandom memfd_create pidfd_open O_PATH O_TMPFILE P_PIDFD SEEK_DATA", resource: "prlimit"}
names |= {signal: "pidfd_send_signal", socket: "SO_REUSEPORT TCP_USER_TIMEOUT", time: "CLOCK_BOOTTIME"}
found = [name for module in names for name in names[module].split() if hasattr(module, name)]
try:
    os.posix_spawn("/bin/true", ["true"], {}, setsid=True)
    found.append("setsid")
except NotImplementedError:
    pass
sys.exit(f"still has {found}" if found else 0)
CHECK
echo "$python"
