#!/bin/sh
# Runs inside the new root, as root, after the packages are installed.
set -eu

# The default user of every sandbox, with password-less sudo.
useradd --create-home --user-group --uid 1000 --shell /bin/bash user
printf 'user ALL=(ALL:ALL) NOPASSWD:ALL\nDefaults !lecture\n' > /etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user

ln -sf /usr/share/zoneinfo/Etc/UTC /etc/localtime
echo Etc/UTC > /etc/timezone
printf 'e2b\n' > /etc/hostname
printf '127.0.0.1\tlocalhost e2b\n::1\tlocalhost ip6-localhost ip6-loopback\n' > /etc/hosts
: > /etc/resolv.conf
: > /etc/machine-id

# pip may write into the system's site: the sandbox is the user's own machine.
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED

# Where the engine mounts the agent and its control socket.
mkdir -p /run/atoll

apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /var/log/apt /tmp/* /root/.bash_history
