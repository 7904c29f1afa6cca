"""Actions of the lock tests that need a process of their own: `locks.py ACTION PATH...`; the paths are one file in several mounts."""

import errno
import fcntl
import mmap
import os
import signal
import struct
import sys
import threading
import time

what, paths = sys.argv[1], sys.argv[2:]
LOCK = "hhqqi4x"


def opened(path):
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def refused(lock, *args):
    try:
        lock(*args)
    except OSError as error:
        return error.errno
    return None


def hold():
    """Takes the fcntl lock of every path, prints "held", and keeps the locks until killed."""
    kept = [opened(path) for path in paths]
    for fd in kept:
        fcntl.lockf(fd, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(600)


def wait():
    """Prints "waits", and then does what `hold` does."""
    print("waits", flush=True)
    hold()


def count():
    """Adds one to the number in the file, a hundred times, under a lock of the given kind."""
    kind, path = paths
    take = fcntl.flock if kind == "flock" else fcntl.lockf
    for _ in range(100):
        fd = opened(path)
        take(fd, fcntl.LOCK_EX)
        number = int(os.pread(fd, 20, 0) or b"0")
        os.pwrite(fd, b"%d" % (number + 1), 0)
        os.close(fd)


def ranges():
    """Checks which ranges a process may lock while another process holds bytes 10 to 19 of the first path."""
    here, there = paths
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(done[1])
        fd = opened(here)
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 10)
        os.write(ready[1], b".")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    fd = opened(there)
    attempt = fcntl.LOCK_EX | fcntl.LOCK_NB
    assert refused(fcntl.lockf, fd, attempt, 1, 19) == errno.EAGAIN
    assert refused(fcntl.lockf, fd, attempt) == errno.EAGAIN
    assert refused(fcntl.lockf, fd, attempt, 10, 0) is None
    assert refused(fcntl.lockf, fd, attempt, 0, 20) is None
    asked = struct.pack(LOCK, fcntl.F_WRLCK, os.SEEK_SET, 15, 1, 0)
    kind, _, start, length, pid = struct.unpack(LOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    assert (kind, start, length, pid) == (fcntl.F_WRLCK, 10, 10, child), (kind, start, length, pid, child)
    # A process does not conflict with its own locks, and closing any descriptor of the file releases all of them.
    again = opened(there)
    assert refused(fcntl.lockf, again, attempt, 5, 0) is None
    os.close(again)
    other = os.fork()
    if other == 0:
        os._exit(refused(fcntl.lockf, opened(here), attempt, 10, 0) or 0)
    assert os.waitpid(other, 0)[1] == 0
    os.write(done[1], b".")
    os.waitpid(child, 0)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 10)


def deadlock():
    """Two processes in different mounts want each other's locks: the later request fails with EDEADLK."""
    here, there = paths
    ready = os.pipe()
    for name in (here + "1", here + "2"):
        os.close(opened(name))
    mine = opened(here + "1")
    fcntl.lockf(mine, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        fcntl.lockf(opened(there + "2"), fcntl.LOCK_EX)
        os.write(ready[1], b".")
        os._exit(refused(fcntl.lockf, opened(there + "1"), fcntl.LOCK_EX) or 0)
    os.read(ready[0], 1)
    time.sleep(1)
    signal.alarm(20)
    own = refused(fcntl.lockf, opened(here + "2"), fcntl.LOCK_EX)
    os.close(mine)
    other = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # On a busy machine the child may request its second lock later than this process.
    assert sorted((own or 0, other)) == [0, errno.EDEADLK], (own, other)


def alarm():
    """A signal with a handler interrupts a wait for a lock, as in any file system."""
    class Woken(Exception):
        pass

    def wake(*_):
        raise Woken

    signal.signal(signal.SIGALRM, wake)
    signal.alarm(1)
    try:
        fcntl.lockf(opened(paths[0]), fcntl.LOCK_EX)
    except Woken:
        return
    raise AssertionError("the lock was free")


def mapped():
    """A memory mapping shows writes through another mount, and the other mount shows changes of the mapping."""
    here, there = paths
    fd = opened(here)
    os.pwrite(fd, b"a" * 4096, 0)
    os.close(fd)
    fd = opened(there)
    view = mmap.mmap(fd, 4096)
    assert view[0:1] == b"a"
    with open(here, "r+b") as file:
        file.write(b"b")
    for _ in range(200):
        if view[0:1] == b"b":
            break
        time.sleep(0.01)
    assert view[0:2] == b"ba", view[0:2]
    view[1:2] = b"c"
    view.flush()
    with open(here, "rb") as file:
        assert file.read(3) == b"bca"


def append():
    """Threads of one process append, each by its own descriptor; no line may be lost."""

    def write_lines(path, word):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        for number in range(200):
            line = b"%s%d\n" % (word, number)
            assert os.write(fd, line) == len(line)

    os.close(opened(paths[0]))
    threads = [threading.Thread(target=write_lines, args=(path, b"%d-" % at)) for at, path in enumerate(paths * 2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for path in paths:
        lines = open(path, "rb").read().splitlines()
        assert len(lines) == len(set(lines)) == 200 * len(threads), (len(lines), len(set(lines)))


globals()[what]()
