#!/usr/bin/env bash
# A Docker engine by hand, for the tests of the docker sandbox: no service manager, no network, no image from outside.
#
#   engine.sh start DIR      start an engine in DIR; prints the address for DOCKER_HOST
#   engine.sh image TAG      make an image with nothing but this machine's Python, in the engine of DOCKER_HOST
#   engine.sh stop DIR       stop the engine and delete DIR
#   engine.sh run DIR COMMAND...   all three around a command; status 0 with a reason where no engine can run
#
# Needs root, dockerd and docker (Debian: docker.io). PYTHON names the interpreter of the image.
set -euo pipefail

start() {
  local dir=$1 i
  mkdir -p "$dir"
  setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/docker.pid" -H "unix://$dir/docker.sock" \
    --iptables=false --ip6tables=false --bridge=none --ip-forward=false --ip-masq=false >"$dir/log" 2>&1 </dev/null &
  for i in $(seq 300); do
    if DOCKER_HOST="unix://$dir/docker.sock" docker info >/dev/null 2>&1; then
      echo "unix://$dir/docker.sock"
      return 0
    fi
    sleep 0.2
  done
  tail -20 "$dir/log" >&2
  return 1
}

stop() {
  local dir=$1 pid i
  pid=$(cat "$dir/docker.pid" 2>/dev/null || true)
  if [ -n "$pid" ]; then
    kill "$pid" 2>/dev/null || true
    for i in $(seq 150); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.2
    done
  fi
  umount "$dir/data" 2>/dev/null || true
  rm -rf "$dir"
}

image() {
  local tag=$1 python prefix name libs empty archive
  python=${PYTHON:-python3}
  prefix=$("$python" -c 'import os, sys; print(os.path.realpath(sys.base_prefix))')
  name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  # The shared libraries that the interpreter and its extension modules are linked with.
  libs=$({ ldd "$prefix/bin/$name"; ldd "$prefix/lib/$name"/lib-dynload/*.so; } 2>/dev/null |
    grep -oE '/[^ ]+\.so[^ ]*' | grep -v "^$prefix" | sort -u | sed 's,^/,,')
  empty=$(mktemp -d)
  archive=$(mktemp)
  mkdir -p "$empty/tmp" "$empty/etc" "$empty/usr/bin"
  chmod 755 "$empty/etc"
  chmod 1777 "$empty/tmp"
  echo 'nobody:x:65534:65534::/:/bin/false' >"$empty/etc/passwd"
  echo 'nogroup:x:65534:' >"$empty/etc/group"
  ln -s "/opt/python/bin/$name" "$empty/usr/bin/python3"
  tar -C "$empty" -cf "$archive" tmp etc usr
  # shellcheck disable=SC2086
  tar -C / -rhf "$archive" $libs
  # shellcheck disable=SC2046
  tar -C / -rf "$archive" --exclude=__pycache__ --exclude=site-packages --exclude=test --exclude=idlelib \
    --exclude=ensurepip --exclude=lib2to3 --exclude=turtledemo --exclude='config-*' --exclude='*.a' \
    --transform "s,^${prefix#/},opt/python," "${prefix#/}/bin/$name" "${prefix#/}/lib/$name" \
    $(cd / && ls "${prefix#/}"/lib/libpython3*.so* 2>/dev/null || true)
  docker import -c 'ENV PATH=/opt/python/bin:/usr/bin' -c 'ENV LD_LIBRARY_PATH=/opt/python/lib' "$archive" "$tag"
  rm -rf "$empty" "$archive"
}

missing() {
  [ "$(id -u)" = 0 ] || { echo "not root"; return; }
  local tool
  for tool in dockerd docker ldd tar; do
    command -v "$tool" >/dev/null || { echo "$tool is not installed"; return; }
  done
}

run() {
  local dir=$1 why address status=0
  shift
  why=$(missing)
  if [ -n "$why" ]; then
    echo "skipped: no Docker engine can run here: $why"
    return 0
  fi
  if ! address=$(start "$dir"); then
    stop "$dir"
    echo "skipped: the Docker engine does not start here"
    return 0
  fi
  export DOCKER_HOST=$address
  { bash "$0" image corrgrpo-sandbox:test >/dev/null && "$@"; } || status=$?
  stop "$dir"
  return "$status"
}

"$@"
