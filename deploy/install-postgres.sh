#!/bin/sh
# Installs PostgreSQL's programs with the system's package manager, unless some are there. callgate runs them itself, as
# a private server in its own folder; a server that the package may start is not used.
set -eu

found() {
  command -v postgres >/dev/null 2>&1 && return 0
  if command -v pg_config >/dev/null 2>&1 && [ -x "$(pg_config --bindir)/postgres" ]; then return 0; fi
  for bin in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
    [ -x "$bin/postgres" ] && return 0
  done
  return 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null 2>&1; then sudo "$@"; else
    echo "install-postgres: needs root for: $*" >&2
    exit 1
  fi
}

found && exit 0
echo "PostgreSQL's programs are missing; installing them" >&2
if command -v apt-get >/dev/null 2>&1; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql
elif command -v dnf >/dev/null 2>&1; then
  as_root dnf install -y postgresql-server
elif command -v apk >/dev/null 2>&1; then
  as_root apk add postgresql
elif command -v pacman >/dev/null 2>&1; then
  as_root pacman -S --noconfirm postgresql
elif command -v brew >/dev/null 2>&1; then
  brew install postgresql@17
else
  echo "install-postgres: no known package manager; install PostgreSQL 14 or newer, or use --database-url" >&2
  exit 1
fi
found || { echo "install-postgres: PostgreSQL was installed, but its programs are not found" >&2; exit 1; }
