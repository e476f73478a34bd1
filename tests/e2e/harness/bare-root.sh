#!/usr/bin/env bash
# PID 1 of a bare agent's namespaces: bare-root.sh ROOTFS DIRECTORY AGENT PORT. Lays a writable root over the template and
# becomes the agent in it. Mounts are private to the namespace and end with it.
set -euo pipefail

rootfs=$1 directory=$2 agent=$3 port=$4
root=$directory/root

ip link set lo up
hostname localhost

mkdir -p "$directory/upper" "$directory/work" "$root"
chmod 755 "$directory" "$directory/upper"
mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$directory/upper,workdir=$directory/work" "$root"

mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=755,size=1m dev "$root/dev"
mknod -m 666 "$root/dev/null" c 1 3
mknod -m 666 "$root/dev/zero" c 1 5
mknod -m 666 "$root/dev/full" c 1 7
mknod -m 666 "$root/dev/random" c 1 8
mknod -m 666 "$root/dev/urandom" c 1 9
mknod -m 666 "$root/dev/tty" c 5 0
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"

install -m 755 "$agent" "$root/usr/local/bin/atoll-agent"
cd "$root"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  chroot "$root" /usr/local/bin/atoll-agent --bare --port "$port"
