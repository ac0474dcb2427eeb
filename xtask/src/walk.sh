#!/bin/bash
# walk.sh PROJECT ROOT SUITE MIRROR RUST COMMAND...: README's commands on a bare Debian. Makes ROOT by
# debootstrap, installs gcc and what rustup's own page asks for, adds the toolchain RUST of this
# machine and a copy of PROJECT, and runs each COMMAND there. Prints how long each took. To be run
# with mount and process namespaces of its own, which end everything that a command leaves.
set -euo pipefail
PROJECT=$1 ROOT=$2 SUITE=$3 MIRROR=$4 RUST=$5; shift 5
export LC_ALL=C
# At its own path: a toolchain there can be a link to another one by its whole path.
rustup=$(readlink -f "$RUST/rustup")
began=$SECONDS
took() { echo "-- $1: $((SECONDS - began)) s"; began=$SECONDS; }

debootstrap --variant=minbase "$SUITE" "$ROOT" "$MIRROR" > "$ROOT.log" 2>&1 ||
  { tail -5 "$ROOT.log" >&2; exit 75; }
took "debootstrap of $SUITE"
# A root directory that is no mount point refuses `unshare --mount`, which tests use.
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --rbind /sys "$ROOT/sys"
mount --rbind /dev "$ROOT/dev"
cp /etc/resolv.conf "$ROOT/etc/resolv.conf"
for proxy in /etc/apt/apt.conf.d/*proxy*; do [ ! -e "$proxy" ] || cp "$proxy" "$ROOT/etc/apt/apt.conf.d/"; done

# A process in the root, with nothing of this machine's environment but how to reach the network.
variables=(HOME=/root "PATH=/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
  "RUSTUP_HOME=$rustup" TERM=dumb)
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name-}" ] || variables+=("$name=${!name}")
done
inside() { env -i "${variables[@]}" chroot "$ROOT" bash -c "cd /root/midair 2>/dev/null || cd /; $1"; }

inside 'export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev ca-certificates' \
  >> "$ROOT.log" 2>&1 || { tail -5 "$ROOT.log" >&2; exit 75; }
# A company's own certificates.
if [ -n "${SSL_CERT_FILE-}" ]; then
  cp "$SSL_CERT_FILE" "$ROOT/etc/ssl/certs/of-this-machine.crt"
  for name in SSL_CERT_FILE PIP_CERT CARGO_HTTP_CAINFO; do variables+=("$name=/etc/ssl/certs/of-this-machine.crt"); done
fi
took "gcc and certificates by apt"

# Rust, as rustup leaves it. Toolchains are read only: nothing in the root changes this machine.
mkdir -p "$ROOT$rustup" "$ROOT/root/.cargo/bin" "$ROOT/root/midair"
mount --bind "$rustup" "$ROOT$rustup"
mount -o remount,bind,ro "$ROOT$rustup"
for program in cargo rustc rustdoc rustup rustfmt cargo-fmt cargo-clippy clippy-driver cargo-miri; do
  [ ! -e "$RUST/cargo/bin/$program" ] || cp -L "$RUST/cargo/bin/$program" "$ROOT/root/.cargo/bin/"
done
for file in config.toml config; do [ ! -e "$RUST/cargo/$file" ] || cp "$RUST/cargo/$file" "$ROOT/root/.cargo/"; done
( cd "$PROJECT" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"; done | tar -c --null -T - ) | tar -x -C "$ROOT/root/midair"
[ ! -e "$PROJECT/.git" ] || { git clone --quiet --bare --local --no-hardlinks "$PROJECT" "$ROOT/root/midair/.git" &&
  git --git-dir="$ROOT/root/midair/.git" config core.bare false &&
  git --git-dir="$ROOT/root/midair/.git" --work-tree="$ROOT/root/midair" reset --quiet; }
took "Rust and the clone"

for command; do
  echo "-- \$ $command"
  status=0
  inside "time $command" < /dev/null || status=$?
  took "$command"
  [ "$status" = 0 ] || { echo "-- exit code $status: $command"; exit "$status"; }
done
