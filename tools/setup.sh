# Sourced by ./atoll and tools/dev: what a fresh Debian 12 machine lacks gets installed, built and prepared here.
# Everything is idempotent; progress goes to stderr. Needs $root.

build=$root/build/release
stamps=$root/build/.stamps

. "$root/tools/template-hash.sh"
. "$root/tools/criu-release.sh"

step() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }

need_root() {
  [ "$(id -u)" = 0 ] && return
  echo "atoll: this command sets up namespaces, mounts and cgroups, so it needs root. Run it with sudo." >&2
  exit 1
}

# ensure_packages LIST_NAME: installs what packaging/packages-LIST_NAME.txt names and the machine lacks.
ensure_packages() {
  local list=$root/packaging/packages-$1.txt stamp missing=()
  stamp=$stamps/packages-$1-$(sha256sum "$list" | cut -c1-12)
  [ -f "$stamp" ] && return
  local package
  while read -r package; do
    case "$package" in '' | '#'*) continue ;; esac
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done < "$list"
  if [ ${#missing[@]} -gt 0 ]; then
    need_root
    step "installing ${#missing[@]} Debian packages (${missing[*]:0:4} …)"
    local log=$root/build/apt.log
    mkdir -p "$root/build"
    if ! { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
      tail -20 "$log" >&2
      echo "atoll: apt-get failed; the lines above say why (whole log: build/apt.log)" >&2
      exit 1
    fi
  fi
  mkdir -p "$stamps"
  touch "$stamp"
}

# ensure_build PRESET TARGET...: configures once, builds what changed.
ensure_build() {
  local preset=$1 dir=$root/build/$1
  shift
  if [ ! -f "$dir/build.ninja" ]; then
    step "configuring the $preset build"
    (cd "$root" && cmake --preset "$preset") >"$root/build/configure-$preset.log" 2>&1 || {
      tail -20 "$root/build/configure-$preset.log" >&2
      exit 1
    }
  fi
  # The runners are compared at every build, which is nothing to speak of.
  # What is left to do is read whole: a reader that stops at the first line ends the writer by SIGPIPE, which would look like nothing to do.
  local steps work
  if steps=$(ninja -C "$dir" -n "$@" 2>/dev/null) && work=$(awk '/^\[/ && !/Assembling kernels$/' <<<"$steps") && [ -z "$work" ]; then
    case "$steps" in *Assembling*) ninja -C "$dir" "$@" >/dev/null ;; esac
    return
  fi
  step "building ($preset): the first time takes a few minutes"
  if [ -t 2 ]; then
    ninja -C "$dir" "$@" >&2 || { echo "atoll: the build failed" >&2; exit 1; }
  else
    # Not a terminal: every tenth step is progress enough, failures are shown whole.
    NINJA_STATUS='[%f/%t %es] ' ninja -C "$dir" "$@" 2>&1 |
      awk '/^\[[0-9]+\// { if (++n % 10 == 1) { print; fflush() } next } /^ninja: (Entering|no work)/ { next } { print; fflush() }' >&2
    [ "${PIPESTATUS[0]}" = 0 ] || { echo "atoll: the build failed" >&2; exit 1; }
  fi
}

# ensure_template NAME DIR
ensure_template() {
  template_is_current "$1" "$2" && return
  need_root
  step "preparing the template $1"
  "$root/tools/build-template" "$1" "$2"
}

# ensure_criu TOOLS_DIR: without it a server can freeze sandboxes, but not put their memory into files; so a failure stops nothing, and
# is not repeated for an hour.
ensure_criu() {
  local tools=$1 failed=$1/.criu-failed
  criu_is_current "$tools" && return
  [ -z "$(find "$failed" -mmin -60 2>/dev/null)" ] || return 0
  step "preparing CRIU, which puts the memory of paused sandboxes into files"
  if "$root/tools/install-criu" "$tools"; then
    rm -f "$failed"
  else
    touch "$failed" 2>/dev/null || true
    step "no CRIU: paused sandboxes stay in memory, snapshots and forks are refused. To try again: tools/install-criu $tools"
  fi
}

# The user that the server becomes once its warden runs.
ensure_user() {
  getent passwd atoll >/dev/null && return
  need_root
  step "creating the system user atoll"
  useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin atoll
}

# home_of ARGS...: the data directory that the command line or the environment names.
home_of() {
  local previous=
  for argument in "$@"; do
    [ "$previous" = --home ] && { echo "$argument"; return; }
    case "$argument" in --home=*) echo "${argument#--home=}"; return ;; esac
    previous=$argument
  done
  echo "${ATOLL_HOME:-/var/lib/atoll}"
}

# What a command uses. `run` starts with the small one; a server offers all. ATOLL_SKIP_TEMPLATES="NAME ..." leaves some out of a
# server: code-interpreter-v1 takes a few minutes and some gigabytes.
templates_of() {
  case "$1" in
    run) echo "base code-interpreter-slim" ;;
    server)
      local name
      for name in base code-interpreter-slim httpbin code-interpreter-v1; do
        case " ${ATOLL_SKIP_TEMPLATES:-} " in *" $name "*) ;; *) echo "$name" ;; esac
      done
      ;;
  esac
}

# ensure_templates DIR NAME...: in this order, as later ones are built on earlier ones.
ensure_templates() {
  local dir=$1 name
  shift
  for name in "$@"; do ensure_template "$name" "$dir" || return 1; done
}

# ensure_ready run|server|binaries-only ARGS...
ensure_ready() {
  local what=$1
  shift
  ensure_packages build
  if [ "$what" = binaries-only ]; then
    ensure_build release atoll atoll-warden atoll-agent kernels
    return
  fi
  ensure_user
  local dir job= name tools
  dir=${ATOLL_TEMPLATES:-$(home_of "$@")/templates}
  for name in $(templates_of "$what"); do
    if ! template_is_current "$name" "$dir"; then
      # Packages for templates come over the network while the compiler uses the processors.
      # shellcheck disable=SC2046
      ensure_templates "$dir" $(templates_of "$what") &
      job=$!
      break
    fi
  done
  tools=${ATOLL_TOOLS:-$(home_of "$@")/tools}
  ensure_criu "$tools" &
  local criu=$!
  ensure_build release atoll atoll-warden atoll-agent kernels
  wait "$criu" || true
  if [ -n "$job" ]; then wait "$job" || exit 1; fi
}

template_is_current() {
  grep -qs "\"recipe\": \"$(template_hash "$1")\"" "$2/$1/manifest.json"
}
