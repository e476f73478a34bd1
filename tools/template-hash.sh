# Sourced: template_hash NAME prints the hash of a template's recipe. Needs $root.

template_hash() {
  local dir=$root/templates/$1
  if [ -f "$dir/from" ]; then
    # What it is built on is part of it.
    { cat "$dir/from" "$dir/packages.txt" "$dir/settings" "$dir/setup.sh" && template_hash "$(cat "$dir/from")"; } |
      sha256sum | cut -c1-16
    return
  fi
  local files="$dir/packages.txt $dir/setup.sh"
  [ -f "$dir/rootfs" ] && files="$dir/rootfs $dir/start.py"
  # shellcheck disable=SC2086
  cat $files | sha256sum | cut -c1-16
}
