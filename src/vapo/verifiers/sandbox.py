"""A sandbox of Linux namespaces for processes that run what a model wrote.

A process that has entered it sees no other process than its own descendants, no network, and no file that it could
write but in a temporary folder of its own, held in memory. Each of its children then gives up what is left before it
runs anything: all capabilities, starting processes and programs, opening sockets, memory that outlives it, a say in the
limits of others, and memory, open files and file sizes beyond a limit.

Nothing here needs a privilege, and nothing is done half: where the system withholds any of it, `NoSandboxError` says
what.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from vapo.errors import VapoError

__all__ = [
    "NoSandboxError",
    "clear_scratch",
    "close_files_from",
    "die_with_parent",
    "enter",
    "lock_down",
    "own_memory",
]

SCRATCH_BYTES = 64 << 20
"""Room in the temporary folder."""
MOST_FILES = 64
"""Open files of one item."""
HIDDEN = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/mnt", "/media")
"""Folders covered with empty ones, since programs leave sockets in them; the first free one is the temporary folder."""

_CLONE_NEW = {
    "NS": 0x20000,
    "UTS": 0x4000000,
    "IPC": 0x8000000,
    "USER": 0x10000000,
    "PID": 0x20000000,
    "NET": 0x40000000,
}
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = (
    1,
    4,
    22,
    24,
    38,
)
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_SETATTR = -100, 0x8000, 442
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 1, 2, 4

# What a locked-down process may not call at all. What System V's calls make outlives the process that made it, outside
# of every limit on memory.
# fork vfork execve execveat, ptrace process_vm_writev, mount umount2 pivot_root unshare setns open_by_handle_at,
# add_key request_key keyctl, bpf perf_event_open userfaultfd io_uring_setup kexec_load, memfd_create, socket,
# shmget semget msgget
_DENIED_X86_64 = (
    57, 58, 59, 322, 101, 311, 165, 166, 155, 272, 308, 304, 248, 249, 250, 321, 298, 323, 425, 246, 319, 41,
    29, 64, 68,
)  # fmt: skip
_DENIED_AARCH64 = (
    221, 281, 117, 271, 40, 39, 41, 97, 268, 265, 217, 218, 219, 280, 241, 282, 425, 104, 279, 198, 194, 190, 186,
)  # fmt: skip
# By machine: the architecture's number for seccomp, `clone`, `prlimit64`, and what is denied.
_MACHINES = {
    "x86_64": (0xC000003E, 56, 302, _DENIED_X86_64),
    "aarch64": (0xC00000B7, 220, 261, _DENIED_AARCH64),
}
_CLONE3, _CLONE_THREAD, _X32 = 435, 0x10000, 0x40000000
_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class NoSandboxError(VapoError):
    """This system offers no isolation, or not all of it. The message says what is missing."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _must(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        message = f"no isolation here: {what}: {os.strerror(number)}"
        raise NoSandboxError(message)


def die_with_parent() -> None:
    """Be killed when the thread that started this process ends, as far as the system offers that."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def close_files_from(lowest: int) -> None:
    """Close every open file with this number or a higher one.

    Example:
        >>> close_files_from(1_000_000)
    """
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - numbers, not paths
    except OSError:
        numbers = list(range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    for number in numbers:
        if number >= lowest:
            with contextlib.suppress(OSError):  # the one that listed them is closed already
                os.close(number)


def own_memory() -> int:
    """Bytes of address space that this process has now, 0 where the system does not tell.

    Example:
        >>> own_memory() >= 0
        True
    """
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0


def enter(needed: Iterable[str] = ()) -> str:
    """Put this process into a sandbox of its own; returns the temporary folder, empty and the only place to write.

    The process forks: a child goes on from here as the first process of its namespace, so that all others in there
    die with it; the process that called waits, ends as the child ends, and takes it along when it is killed.

    Args:
        needed: Paths that must stay in sight, beside Python's own.

    Raises:
        NoSandboxError: If anything is missing. Some of it may be in force by then: end the process.
    """
    machine = platform.machine()
    if sys.platform != "linux" or machine not in _MACHINES:
        here = f"{sys.platform} on {machine}"
        message = f"no isolation here: it needs Linux on {' or '.join(_MACHINES)}, and this is {here}"
        raise NoSandboxError(message)
    libc = _libc()
    user, group = os.geteuid(), os.getegid()
    # A user namespace can be entered only with one thread, and libraries start threads when they are loaded.
    _go_on_in_a_child()
    _must(libc.unshare(sum(_CLONE_NEW.values())), "namespaces")
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        message = f"no isolation here: user namespace: {error.strerror}"
        raise NoSandboxError(message) from None
    _go_on_in_a_child()
    scratch = _mount(libc, [sys.prefix, sys.base_prefix, *sys.path, *needed])
    _must(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "no dumps")
    return scratch


def _go_on_in_a_child() -> None:
    """Fork. The child goes on, and dies with its parent; the parent waits, and ends as the child does."""
    child = os.fork()
    if not child:
        die_with_parent()
        return
    # The pipes are the child's alone: their end must mean its end.
    close_files_from(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def _mount(libc: ctypes.CDLL, needed: list[str]) -> str:
    real = [os.path.realpath(path) for path in needed if path] + [os.path.realpath(".")]
    hidden = [
        path
        for path in HIDDEN
        if Path(path).is_dir() and not Path(path).is_symlink() and not any(_below(one, path) for one in real)
    ]
    if not hidden:
        message = f"no isolation here: none of {', '.join(HIDDEN)} is free for a temporary folder"
        raise NoSandboxError(message)
    _must(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None), "private mounts")
    # Devices too, since a read-only mount does not keep anybody from writing to those.
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV, 0, 0, 0)
    frozen = libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes))
    _must(frozen, "read-only mounts (Linux 5.12 and later)")
    for path in hidden[1:]:
        _must(_tmpfs(libc, path, 1 << 16, _MS_RDONLY), f"an empty {path}")
    # Where root runs this, root owns the settings of the whole machine that are files in there.
    if libc.mount(b"proc", b"/proc", b"proc", _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None):
        # A container may forbid it; then there is no /proc at all, rather than the one that shows everybody.
        _must(_tmpfs(libc, "/proc", 1 << 16, _MS_RDONLY), "a /proc of its own")
    _must(libc.mount(b"/dev/null", b"/dev/null", None, _MS_BIND, None), "/dev/null")
    _must(libc.mount(None, b"/dev/null", None, _MS_REMOUNT | _MS_BIND | _MS_NOSUID, None), "/dev/null")
    _must(_tmpfs(libc, hidden[0], SCRATCH_BYTES), "a temporary folder")
    os.chdir(hidden[0])
    return hidden[0]


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _tmpfs(libc: ctypes.CDLL, path: str, size: int, flags: int = 0) -> int:
    options = f"size={size},mode=700,nr_inodes=4096".encode()
    result: int = libc.mount(b"tmpfs", path.encode(), b"tmpfs", flags | _MS_NOSUID | _MS_NODEV, options)
    return result


def clear_scratch(scratch: str) -> None:
    """Give the sandbox an empty temporary folder again, whatever stands in the old one."""
    libc = _libc()
    os.chdir("/")
    _must(libc.umount2(scratch.encode(), _MNT_DETACH), "the old temporary folder")
    _must(_tmpfs(libc, scratch, SCRATCH_BYTES), "a temporary folder")
    os.chdir(scratch)


def lock_down(memory: int, seconds: float) -> None:
    """Give up for good all that is left, before running what cannot be trusted.

    Args:
        memory: Bytes of address space beyond those in use.
        seconds: Processor time.

    Raises:
        NoSandboxError: If the system withholds any of it.
    """
    libc = _libc()
    limits = {
        resource.RLIMIT_AS: own_memory() + memory,
        resource.RLIMIT_FSIZE: SCRATCH_BYTES,
        resource.RLIMIT_NOFILE: MOST_FILES,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
        resource.RLIMIT_CPU: int(seconds) + 2,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bound, bound))
    capability = 0
    while libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _must(libc.capset(header, none), "dropping capabilities")
    _must(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    program = _filter(platform.machine())
    buffer = ctypes.create_string_buffer(program, len(program))
    described = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    )
    _must(libc.prctl(_PR_SET_SECCOMP, 2, described, 0, 0), "filtering system calls")


def _filter(machine: str) -> bytes:
    """A classic BPF program: threads may be started; processes, programs and namespaces may not."""
    architecture, clone, limits, denied = _MACHINES[machine]
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    deny = (give, 0, 0, _ERRNO | _EPERM)
    steps = [
        (load, 0, 0, 4),  # the architecture: no detour by another one's numbers
        (equal, 1, 0, architecture),
        deny,
        (load, 0, 0, 0),  # the number of the call
        (at_least, 0, 1, _X32),
        deny,
        # The C library then falls back to `clone`, whose flags a filter can see.
        (equal, 0, 1, _CLONE3),
        (give, 0, 0, _ERRNO | _ENOSYS),
    ]
    for number in denied:
        steps += [(equal, 0, 1, number), deny]
    first_argument = (load, 0, 0, 16)
    steps += [
        (equal, 0, 3, clone),
        first_argument,
        (any_bit, 5, 0, _CLONE_THREAD),
        deny,
        # Its own limits are its own business; those of the process that judges are not.
        (equal, 0, 3, limits),
        first_argument,
        (equal, 1, 0, 0),
        deny,
        (give, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
