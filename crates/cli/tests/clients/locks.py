"""Actions of the lock tests that need a process of their own: `locks.py ACTION PATH...`; the paths are one file in several mounts."""

import errno
import fcntl
import mmap
import os
import random
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
    """Checks which ranges a process may lock while another process holds bytes 10 to 19 of the first path. Processes of another machine have no number."""
    here, there, *is_remote = paths
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
    expected = (fcntl.F_WRLCK, 10, 10, 0 if is_remote else child)
    assert (kind, start, length, pid) == expected, (kind, start, length, pid, child)
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


def torture():
    """Four processes lock ranges of one file at random, and note each lock in a model on a local disk: it never has conflicting locks."""
    model_path, *mounts = paths
    length, processes, rounds = 16, 4, 120
    with open(model_path, "wb") as file:
        file.write(bytes(length * processes))
    with open(mounts[0], "wb") as file:
        file.write(bytes(length))
    children = []
    for me in range(processes):
        child = os.fork()
        if child == 0:
            torture_one(model_path, mounts[me % len(mounts)], me, (length, processes, rounds))
            os._exit(0)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert ended == [0] * processes, ended
    for path in mounts:
        fd = opened(path)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)


def torture_one(model_path, path, me, sizes):
    length, processes, rounds = sizes
    pick = random.Random(me)
    model, fd = os.open(model_path, os.O_RDWR), opened(path)

    def note(first, count, kind):
        """Notes own locks, 0: none, 1: shared, 2: exclusive. Returns what was noted before."""
        fcntl.flock(model, fcntl.LOCK_EX)
        table = bytearray(os.pread(model, length * processes, 0))
        before = bytes(table[me * length + first:me * length + first + count])
        table[me * length + first:me * length + first + count] = kind if isinstance(kind, bytes) else bytes([kind]) * count
        for byte in range(length):
            kinds = sorted(table[byte::length])
            assert kinds[-1] < 2 or kinds[-2] == 0, (byte, kinds)
        os.pwrite(model, table, 0)
        fcntl.flock(model, fcntl.LOCK_UN)
        return before

    for _ in range(rounds):
        first = pick.randrange(length)
        count = pick.randrange(1, length - first + 1)
        action = pick.choice(["exclusive", "shared", "unlock", "exclusive", "close"])
        if action == "unlock":
            note(first, count, 0)
            fcntl.lockf(fd, fcntl.LOCK_UN, count, first)
        elif action == "close":
            note(0, length, 0)
            os.close(fd)
            fd = opened(path)
        else:
            is_shared = action == "shared"
            # An exclusive lock becomes shared in the model before another process can see it.
            before = note(first, count, 0) if is_shared else None
            try:
                fcntl.lockf(fd, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, count, first)
            except BlockingIOError:
                if is_shared:
                    note(first, count, before)
                continue
            note(first, count, 1 if is_shared else 2)
    note(0, length, 0)
    os.close(fd)


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
