#!/bin/bash
# Fetches the Debian packages of the training corpus, unpacks them without installing anything, and
# makes the corpus of them: train.txt, heldout.txt, eval_text.txt and manifest.json.
#
# Usage: tools/make_corpus.sh OUT_DIR [MINKE_TRAIN_PROGRAM]
# Needs: apt-get with a source of Debian 12 packages, dpkg-deb, gzip; about 1 GB of disk.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
out=$1
program=${2:-build/release/minke-train}
mkdir -p "$out/packages"

"$program" corpus --list | while read -r package; do
  folder=$out/packages/$package
  if [ -f "$folder.version" ]; then continue; fi
  rm -rf --one-file-system "$folder"
  mkdir -p "$folder"
  echo "fetching $package" >&2
  if ! (cd "$folder" && apt-get download -q "$package" > /dev/null); then
    echo "$package is not available; the corpus is made without it" >&2
    rmdir "$folder"
    continue
  fi
  archive=$(ls "$folder"/*.deb)
  dpkg-deb -x "$archive" "$folder"
  version=$(dpkg-deb -f "$archive" Version)
  rm "$archive"
  # dictzip is gzip under another name.
  find "$folder" -type f -name '*.dz' -exec sh -c 'gzip -dc "$1" > "${1%.dz}"' _ {} \;
  find "$folder" -type f \( -name '*.html.gz' -o -name '*.pod.gz' -o -path '*/man/man*.gz' \) \
    -exec gzip -df {} +
  echo "$version" > "$folder.version"
done
"$program" corpus --packages "$out/packages" --out "$out"
