#!/usr/bin/env bash
# Tests of the web page: ./tests/web/run.sh [PART-OF-A-NAME]
# Installs what they need: nodejs, npm and chromium from Debian, playwright-core from npm (into
# build/web). Where that cannot be had it says "skipped: REASON" and ends with 0, with 1 if CI is
# set. MINKE_WEB_URL=http://127.0.0.1:8890/ also tries the page of a running server.
set -uo pipefail
cd "$(dirname "$0")/../.."
. tools/packages.sh

PLAYWRIGHT_VERSION=1.65.1
MODULES=$PWD/build/web
INSTALL_SECONDS_MAX=300

skip() {
  say "skipped: $*"
  [ -z "${CI:-}" ]
  exit
}

missing=()
command -v node >/dev/null 2>&1 || missing+=(nodejs)
command -v npm >/dev/null 2>&1 || missing+=(npm)
command -v "${MINKE_CHROMIUM:-/usr/bin/chromium}" >/dev/null 2>&1 || missing+=(chromium)
if [ "${#missing[@]}" -gt 0 ]; then
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1 ||
    skip "missing tool: ${missing[*]}, and only root can install it"
  say "installing ${missing[*]}"
  (apt_quietly update && apt_quietly install --no-install-recommends "${missing[@]}") ||
    skip "missing tool: ${missing[*]} could not be installed"
fi
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 18 ] ||
  skip "node $(node --version) is too old; the tests need 18 or later"

if [ ! -f "$MODULES/node_modules/playwright-core/package.json" ]; then
  mkdir -p "$MODULES"
  [ -f "$MODULES/package.json" ] || printf '{"private": true}\n' >"$MODULES/package.json"
  timeout "$INSTALL_SECONDS_MAX" npm install --prefix "$MODULES" --no-audit --no-fund \
    --ignore-scripts --silent "playwright-core@$PLAYWRIGHT_VERSION" ||
    skip "playwright-core $PLAYWRIGHT_VERSION could not be fetched from npm"
fi

export MINKE_WEB_MODULES=$MODULES
status=0
node tests/web/page_test.mjs "$@" || status=1
if [ -n "${MINKE_WEB_URL:-}" ]; then
  node tests/web/server_test.mjs "$@" || status=1
fi
exit "$status"
