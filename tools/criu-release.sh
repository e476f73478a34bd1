# Sourced: which CRIU Atoll uses. The stamp of an installation names it; another one means to install again.
criu_suite=forky  # Debian's first release whose CRIU dumps internet sockets of today's kernels
criu_minimum=4.2
criu_stamp="criu from $criu_suite, layout 1"

# criu_is_current TOOLS_DIR
criu_is_current() { [ "$(head -n1 "$1/criu/stamp" 2>/dev/null)" = "$criu_stamp" ]; }
