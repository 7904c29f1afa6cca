"""Carries out file operations as one user. Reads one JSON list per line, prints the errno of each operation, 0 if it succeeded."""

import ctypes
import json
import os
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
KINDS = {"fifo": stat.S_IFIFO, "device": stat.S_IFCHR}


def create(path, kind, mode):
    if kind == "file":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    elif kind == "directory":
        os.mkdir(path, mode)
    elif kind == "symlink":
        os.symlink("target", path)
    else:
        os.mknod(path, KINDS[kind] | mode, os.makedev(1, 3))


def rename(old, new, flags):
    if libc.renameat2(AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


OPERATIONS = {
    "create": create,
    "link": lambda old, new: os.link(old, new, follow_symlinks=False),
    "unlink": os.unlink,
    "rmdir": os.rmdir,
    "rename": rename,
    "chmod": os.chmod,
    "chown": os.lchown,
    "truncate": os.truncate,
    "touch": lambda path: os.utime(path, follow_symlinks=False),
    "utime": lambda path, seconds: os.utime(path, (seconds, seconds), follow_symlinks=False),
    "setxattr": lambda path, name, value: os.setxattr(path, name, bytes.fromhex(value)),
    "removexattr": os.removexattr,
}


def main():
    uid, gid, groups = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    os.chdir(sys.argv[4])
    os.umask(0)
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            OPERATIONS[name](*arguments)
            number = 0
        except OSError as error:
            number = error.errno
        print(number, flush=True)


main()
