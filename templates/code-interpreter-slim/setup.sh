#!/bin/sh
# Runs inside the new root, as root, after the packages are installed.
set -eu
say() { echo "setup: $*"; }

rm -f /usr/lib/python3*/EXTERNALLY-MANAGED

# Variables for every process of a sandbox: read by sudo and su from the first file, by login shells from the second.
cat > /etc/environment <<'ENV'
LANG=C.UTF-8
PIP_DEFAULT_TIMEOUT=100
PIP_DISABLE_PIP_VERSION_CHECK=1
PIP_NO_CACHE_DIR=1
MPLCONFIGDIR=/var/cache/atoll/matplotlib
IPYTHONDIR=/var/cache/atoll/ipython
NODE_PATH=/usr/local/lib/node_modules
NPM_CONFIG_CACHE=/var/cache/atoll/npm
NPM_CONFIG_UPDATE_NOTIFIER=false
ENV
cat > /etc/profile.d/atoll.sh <<'PROFILE'
while IFS='=' read -r atoll_name atoll_value; do
  case $atoll_name in
    '' | '#'*) ;;
    *) eval "[ -n \"\${$atoll_name+set}\" ]" || export "$atoll_name=$atoll_value" ;;
  esac
done < /etc/environment
unset atoll_name atoll_value
PROFILE

# pip, npm -g and R's install.packages of the default user write here, and the kernels look here first.
mkdir -p /usr/local/lib/python3.13/dist-packages /usr/local/lib/node_modules /usr/local/share/man
chmod -R a+rwX /usr/local

# What libraries keep between runs stays out of the user's home, where it would look like a result.
say "matplotlib's font list"
mkdir -p /var/cache/atoll/matplotlib /var/cache/atoll/ipython /var/cache/atoll/npm
MPLCONFIGDIR=/var/cache/atoll/matplotlib MPLBACKEND=agg python3 - <<'PY'
import matplotlib.pyplot as plt
plt.figure().savefig("/tmp/first.png")
PY
chmod -R a+rwX /var/cache/atoll

say "byte code"
python3 -m compileall -q -x '/(lib2to3|test|tests)/' /usr/lib/python3 /usr/lib/python3.13 >/dev/null || true

mkdir -p /etc/atoll
echo '{"languages": ["python", "javascript", "typescript", "bash"]}' > /etc/atoll/interpreter.json
