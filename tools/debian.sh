# Sourced by tools that install Debian packages into trees of their own.

# The mirror that this machine's apt uses for Debian itself, as a URL; prints nothing and fails if it knows none.
debian_mirror() {
  local mirror
  mirror=$(known_debian_mirror)
  if [ -z "$mirror" ]; then
    say "fetching apt's package lists, to learn this machine's mirror"
    apt-get update -qq >&2 || true
    mirror=$(known_debian_mirror)
  fi
  if [ -z "$mirror" ]; then
    say "this machine's apt knows no Debian mirror (see /etc/apt/sources.list)"
    return 1
  fi
  echo "$mirror"
}

known_debian_mirror() {
  apt-get indextargets --format '$(SITE)|$(ORIGIN)|$(LABEL)' 'Created-By: Packages' 2>/dev/null |
    awk -F'|' '$2 == "Debian" && $3 == "Debian" && !found {found = 1; print $1}'
}

# install_with LOG PATTERN COMMAND...: runs it in the background with its output in LOG, tells every ten seconds which line with PATTERN
# came last, and shows the end of the log if it fails. $job is its process while it runs: for the caller's trap.
job=
install_with() {
  local log=$1 pattern=$2 started
  shift 2
  started=$(date +%s)
  "$@" >"$log" 2>&1 9>&- &
  job=$!
  while kill -0 "$job" 2>/dev/null; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$job" 2>/dev/null && sleep 1 || break; done
    kill -0 "$job" 2>/dev/null && say "$(($(date +%s) - started)) s: $(grep -a "$pattern" "$log" 2>/dev/null | tail -1 | cut -c1-77)"
  done
  if ! wait "$job"; then
    job=
    tail -25 "$log" >&2
    say "installing packages failed; the lines above say why. Nothing was left behind."
    return 1
  fi
  job=
  rm -f "$log"
}

# For the trap of a script that uses install_with.
end_job() {
  [ -n "$job" ] || return 0
  kill "$job" 2>/dev/null || true
  wait "$job" || true
  job=
}
