# Sourced by quickstart and test: the one list of Debian packages, how to install what is missing
# of them, how many compile jobs fit this machine, and a short account of a long build.

# To build the program.
BUILD_PACKAGES=(g++ cmake ninja-build pkg-config libhwy-dev nlohmann-json3-dev libexpected-dev
  libcli11-dev libfmt-dev libpcre2-dev libutf8proc-dev libssl-dev libsqlite3-dev libxxhash-dev
  libboost1.81-dev)

# To build and run every test on top of that.
TEST_PACKAGES=(libgtest-dev libgmock-dev librapidcheck-dev clang-14 clang-tidy-14 clang-format-14
  libclang-rt-14-dev llvm-14 ccache qemu-user git ca-certificates dpkg-dev file systemd)

# To build the trainer and run its tests.
TRAIN_PACKAGES=(libtorch-dev libopenblas-dev)

# Megabytes that one compiler process may take at its worst, under the sanitizers.
COMPILE_MB_MAX=1300

say() { printf '%s\n' "$*"; }

# Ends the script with a message for a person and exit status 1.
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# The packages of the arguments that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || say "$package"
  done
}

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null 2>&1; then
    sudo "$@"
  else
    die "installing packages needs root and there is no sudo. As root, run: $*"
  fi
}

# apt-get with few questions and few retries, its chatter kept for the case of a failure.
apt_quietly() {
  local log
  log=$(mktemp)
  if ! as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o Acquire::Retries=3 \
      -o DPkg::Lock::Timeout=120 "$@" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "'apt-get $*' failed (its last lines are above). Check the network and the sources in" \
        "/etc/apt, then run this script again."
  fi
  rm -f "$log"
}

# install_packages YES PACKAGE...: installs what is missing; asks first unless YES is 1.
install_packages() {
  local yes=$1 missing answer
  shift
  command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1 ||
    die "this script installs packages with apt-get, which is not here. It is made for Debian 12;" \
        "elsewhere install the libraries of tools/packages.sh by hand and build with" \
        "'cmake --preset release && cmake --build --preset release'."
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  say "Debian packages to install: ${missing[*]}"
  if [ "$yes" -ne 1 ]; then
    [ -t 0 ] || die "there is no terminal to ask on. Run it with --yes to install them unasked."
    printf 'Install them with apt-get now? [Y/n] '
    read -r answer || answer=n
    case "$answer" in
      '' | y | Y | yes | Yes) ;;
      *) die "not installed, so nothing was built. Run it again when you want to go on." ;;
    esac
  fi
  say "Installing ${#missing[@]} packages (a minute or two on a fresh machine) ..."
  apt_quietly update
  apt_quietly install --no-install-recommends "${missing[@]}"
}

# Compile jobs that fit the processors and the free memory of this machine.
compile_jobs() {
  local processors free_mb jobs
  processors=$(nproc)
  free_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  jobs=$((free_mb / COMPILE_MB_MAX))
  [ "$jobs" -ge 1 ] || jobs=1
  [ "$jobs" -le "$processors" ] || jobs=$processors
  say "$jobs"
}

# Reads ninja's lines and passes on one in twenty.
show_progress() {
  # Not awk: mawk reads its input in blocks, so that a line would show minutes late.
  local line
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    if ((BASH_REMATCH[1] % 20 == 0 || BASH_REMATCH[1] == BASH_REMATCH[2])); then
      say "  built ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
    fi
  done
}
