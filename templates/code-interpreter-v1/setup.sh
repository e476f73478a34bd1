#!/bin/sh
# Runs inside the new root, as root, after the packages are installed.
set -eu
say() { echo "setup: $*"; }

printf 'JAVA_HOME=/usr/lib/jvm/default-java\n' >> /etc/environment

# R's site library, where install.packages of the default user writes.
mkdir -p /usr/local/lib/R/site-library
chmod -R a+rwX /usr/local

# Figures with Chinese, Japanese and Korean text show it.
printf '\nfont.family: sans-serif, Noto Sans CJK JP\n' >> /etc/matplotlibrc

say "matplotlib's font list"
rm -f /var/cache/atoll/matplotlib/fontlist-*
MPLCONFIGDIR=/var/cache/atoll/matplotlib MPLBACKEND=agg python3 -W error - 2>/tmp/noise <<'PY'
import matplotlib.pyplot as plt
plt.title("\u6f22\u5b57")
plt.savefig("/tmp/first.png")
PY
if [ -s /tmp/noise ]; then
  cat /tmp/noise
  exit 1
fi
chmod -R a+rwX /var/cache/atoll

say "byte code"
python3 -m compileall -q -x '/(lib2to3|test|tests)/' /usr/lib/python3 /usr/lib/python3.13 >/dev/null || true

echo '{"languages": ["python", "javascript", "typescript", "bash", "r", "java"]}' > /etc/atoll/interpreter.json
