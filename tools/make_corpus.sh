#!/bin/bash
# Fetches the Debian packages of the training corpus, unpacks them without installing anything, and
# makes the corpus of them: train.txt, heldout.txt, eval_text.txt and manifest.json. What an earlier
# call fetched is not fetched again.
#
# Usage: tools/make_corpus.sh OUT_DIR [MINKE_TRAIN_PROGRAM]
# Needs: apt-get with a source of Debian 12 packages, dpkg-deb, gzip; about 1.5 GB of disk.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$1
program=${2:-build/train/minke-train}
mkdir -p "$out/packages" "$out/archives"

available=$(mktemp)
trap 'rm -f "$available"' EXIT
apt-cache pkgnames > "$available"
missing=()
for package in $("$program" corpus --list); do
  if [ -f "$out/packages/$package.version" ]; then continue; fi
  if grep -qxF "$package" "$available"; then
    missing+=("$package")
  else
    echo "$package is not available; the corpus is made without it" >&2
  fi
done

# One call for all: each takes apt-get seconds before it begins.
if [ ${#missing[@]} -gt 0 ]; then
  (cd "$out/archives" && apt-get download -q "${missing[@]}" >&2)
fi
for package in "${missing[@]}"; do
  folder=$out/packages/$package
  archive=$(echo "$out/archives/${package}_"*.deb)
  echo "unpacking $package" >&2
  rm -rf --one-file-system "$folder"
  mkdir -p "$folder"
  dpkg-deb -x "$archive" "$folder"
  # dictzip is gzip under another name.
  find "$folder" -type f -name '*.dz' -exec sh -c 'gzip -dc "$1" > "${1%.dz}"' _ {} \;
  find "$folder" -type f \( -name '*.html.gz' -o -name '*.pod.gz' -o -path '*/man/man*.gz' \) \
    -exec gzip -df {} +
  dpkg-deb -f "$archive" Version > "$folder.version"
  rm "$archive"
done
"$program" corpus --packages "$out/packages" --out "$out"
