#!/bin/sh
# The container of a pod: a host name, a process tree, /etc/hosts, /dev and a volume of its own, and this machine's files.
# Usage: pod.sh ROOT NAME HOSTS LOG VOLUME MOUNT_PATH COMMAND..., as the first process of new mount, UTS and PID namespaces.
# ROOT is an empty folder, HOSTS and LOG are files; an empty MOUNT_PATH: there is no volume.
set -eu
root=$1 name=$2 hosts=$3 log=$4 volume=$5 mount_path=$6
shift 6
hostname "$name"
mount --make-rprivate /
mount -t tmpfs pod "$root"
for entry in /*; do
    case $entry in /dev | /proc) continue ;; esac
    if [ -L "$entry" ]; then
        cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ]; then
        mkdir "$root$entry"
        mount --rbind "$entry" "$root$entry"
    fi
done
mkdir "$root/proc" "$root/dev" "$root/dev/shm"
mount -t proc proc "$root/proc"
for device in null zero full random urandom; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
: > "$root/dev/termination-log"
mount --bind "$log" "$root/dev/termination-log"
mount --bind "$hosts" "$root/etc/hosts"
if [ -n "$mount_path" ]; then
    mkdir -p "$root$mount_path"
    mount --bind "$volume" "$root$mount_path"
fi
exec chroot "$root" "$@"
