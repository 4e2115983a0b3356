#!/bin/sh
# Prints the path of a Vulkan driver manifest for the CPU (Mesa's lavapipe), for VK_DRIVER_FILES:
#   export VK_DRIVER_FILES=$(sh tools/get-lavapipe.sh)
# Debian 12's own lavapipe lacks a feature that Dawn asks for, so the one of Debian's backports is unpacked, not installed,
# into a cache folder. It needs the packages libvulkan1 and mesa-vulkan-drivers (for the libraries it links).
set -eu
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/rullama/lavapipe}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
manifest=$folder/lvp_icd.json
if [ ! -s "$manifest" ]; then
  # shellcheck source=/dev/null
  . /etc/os-release
  if [ "${VERSION_CODENAME:-}" != bookworm ]; then  # the installed one is new enough elsewhere
    for installed in /usr/share/vulkan/icd.d/lvp_icd*.json; do
      [ -s "$installed" ] && echo "$installed" && exit 0
    done
    echo "get-lavapipe: install Mesa's Vulkan drivers (mesa-vulkan-drivers) first" >&2
    exit 1
  fi
  suite=$VERSION_CODENAME-backports
  # the package archive that this machine already uses
  archive=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\).*/\2/p' | grep -v security | head -n 1)
  if [ -z "$archive" ]; then
    echo "get-lavapipe: apt has no package archive set up on this machine" >&2
    exit 1
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $suite main" >"$work/sources"
  apt() {
    apt-get -qq -oDir::State::Lists="$work/lists" -oDir::Cache="$work/cache" -oDir::Etc::sourcelist="$work/sources" \
      -oDir::Etc::sourceparts=/dev/null -oAPT::Sandbox::User=root "$@" >&2
  }
  apt update
  (cd "$work" && apt download "mesa-vulkan-drivers/$suite")
  dpkg-deb -x "$work"/mesa-vulkan-drivers_*.deb "$work/root"
  driver=$(find "$work/root" -name libvulkan_lvp.so)
  if ldd "$driver" | grep 'not found' >&2; then
    echo "get-lavapipe: install libvulkan1 and mesa-vulkan-drivers first" >&2
    exit 1
  fi
  cp "$driver" "$folder/libvulkan_lvp.so.part"
  mv "$folder/libvulkan_lvp.so.part" "$folder/libvulkan_lvp.so"
  printf '{"file_format_version": "1.0.0", "ICD": {"api_version": "1.4.305", "library_path": "%s"}}\n' "$folder/libvulkan_lvp.so" >"$manifest.part"
  mv "$manifest.part" "$manifest"
fi
echo "$manifest"
