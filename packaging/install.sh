#!/bin/sh
# Installs a release of Tavern for this machine: downloads the tarball, checks its SHA-256 sum, and copies the program, its man pages and
# its completions. Existing configuration is kept.
#
#   sh install.sh                              into /usr/local
#   PREFIX=$HOME/.local sh install.sh          somewhere else
#   sh install.sh 0.1.0                        this version
#
# TAVERN_RELEASES is the address of the releases: a folder for each version (v0.1.0) with its files. A release has it filled in.
set -eu

releases=${TAVERN_RELEASES:-@RELEASES@}
version=${1:-@VERSION@}
prefix=${PREFIX:-/usr/local}

fail() {
    echo "install: $*" >&2
    exit 1
}

case $releases$version in
    *@*) fail "this copy does not say where the releases are: set TAVERN_RELEASES, and give a version" ;;
esac
case $(uname -s) in
    Linux) system=linux ;;
    Darwin) system=macos ;;
    *) fail "there is no build for $(uname -s); build from the source" ;;
esac
case $(uname -m) in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no build for $(uname -m); build from the source" ;;
esac
name=tavern-$version-$system-$machine

if command -v curl >/dev/null; then
    get() { curl --fail --silent --show-error --location --output "$2" "$1"; }
elif command -v wget >/dev/null; then
    get() { wget --quiet --output-document="$2" "$1"; }
else
    fail "curl or wget is needed"
fi
if command -v sha256sum >/dev/null; then
    sum() { sha256sum "$1" | cut -d' ' -f1; }
elif command -v shasum >/dev/null; then
    sum() { shasum -a 256 "$1" | cut -d' ' -f1; }
else
    fail "sha256sum or shasum is needed"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get "$releases/v$version/SHA256SUMS" "$work/SHA256SUMS" || fail "cannot download $releases/v$version/SHA256SUMS"
wanted=$(awk -v file="$name.tar.gz" '$2 == file || $2 == "*" file { print $1 }' "$work/SHA256SUMS")
[ -n "$wanted" ] || fail "version $version has no build for $system on $machine"
get "$releases/v$version/$name.tar.gz" "$work/tavern.tar.gz" || fail "cannot download $name.tar.gz"
got=$(sum "$work/tavern.tar.gz")
[ "$got" = "$wanted" ] || fail "the checksum of $name.tar.gz is $got and should be $wanted; nothing was installed"

tar -xzf "$work/tavern.tar.gz" -C "$work"
mkdir -p "$prefix/bin" "$prefix/share" || fail "cannot write to $prefix; run it as root, or set PREFIX"
# Renamed into place: a running server keeps the old program.
cp "$work/$name/bin/tavern" "$prefix/bin/tavern.new" || fail "cannot write to $prefix/bin; run it as root, or set PREFIX"
mv "$prefix/bin/tavern.new" "$prefix/bin/tavern"
cp -R "$work/$name/share/." "$prefix/share"
echo "install: $("$prefix/bin/tavern" --version) is in $prefix/bin; try it with: tavern dev"
