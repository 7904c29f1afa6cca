"""Runs `tenon top` in a pseudo-terminal with real keys. Arguments: the program, a mount point, and the id of a batch that is to be shown.

Fails with the last frame if the screen does not show what it should within a minute.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

PATIENCE_SECONDS = 60


class Screen:
    """A terminal that keeps the last complete frame."""

    def __init__(self, words, columns, rows):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvp(words[0], words)
        self.bytes = b""
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def read(self):
        ready, _, _ = select.select([self.terminal], [], [], 1)
        if ready:
            try:
                self.bytes += os.read(self.terminal, 65536)
            except OSError:
                return False
        return True

    def frame(self):
        """Returns the lines of the last complete frame, without control sequences."""
        frames = re.findall(rb"\x1b\[H(.*?)\x1b\[J", self.bytes, re.S)
        if not frames:
            return []
        text = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", frames[-1]).decode()
        return text.split("\r\n")

    def wait(self, what, holds):
        """Waits for a frame that is drawn from now on and for which `holds` is true."""
        self.bytes = b""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            assert self.read(), f"{what}: the program has ended; last output {self.bytes!r}"
            lines = self.frame()
            if lines and holds(lines):
                assert len(lines) <= self.rows, f"{what}: {len(lines)} lines on {self.rows} rows"
                for line in lines:
                    assert len(line) <= self.columns, f"{what}: a line is too long: {line!r}"
                return lines
        sys.exit(f"{what}: not shown; the last frame is\n" + "\n".join(self.frame()))

    def end(self):
        """Waits for the end of the program. Returns its exit code and its last output."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.read():
            assert time.monotonic() < deadline, "the program does not end"
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), self.bytes


def has(*parts):
    """Returns a function that is true for lines that contain all parts."""
    return lambda lines: all(any(part in line for line in lines) for part in parts)


def column(lines, title):
    """Returns the values of the first column below its title."""
    start = next(at for at, line in enumerate(lines) if line.startswith(title))
    return [line.split()[0] for line in lines[start + 1 :] if line.strip()]


def main():
    program, mount = sys.argv[1:]
    words = [program, "top", "--interval=200ms"]
    screen = Screen(words + [mount], 120, 24)
    screen.wait("operations", has("tenon top: ", f" at {mount}", "1 operations", "mean ms", "WRITE"))
    before = termios.tcgetattr(screen.terminal)
    assert not before[3] & termios.ICANON, "the terminal is not in raw mode"
    # Sorted by name: S goes to the column before the rate.
    screen.press("S")
    names = column(screen.wait("the order by name", has("operation*")), "operation*")
    assert names == sorted(names) and len(names) > 3, names
    screen.press("r")
    names = column(screen.wait("the opposite order", has("operation~")), "operation~")
    assert names == sorted(names, reverse=True), names
    screen.press("2")
    screen.wait("files", has("written/s", "busy.dat"))
    screen.press("\t")
    screen.wait("processes", has("program", "python3"))
    screen.press("\x1b[C")
    screen.wait("store requests", has("request", "PUT"))
    screen.press("5")
    screen.wait("background work", has("write-back log", "conflicts", "backup"))
    screen.press("h")
    screen.wait("help", has("reverse the order"))
    screen.press("h")
    screen.wait("background work again", has("write-back log"))
    # A paused screen keeps its figures.
    screen.press("1 ")
    paused = screen.wait("a paused screen", has("paused"))
    screen.press("\x1b[B")
    again = screen.wait("a paused screen with another selection", has("paused"))
    assert paused[1:3] == again[1:3], (paused, again)
    screen.press(" ")
    screen.wait("the screen continues", has("q quit"))
    # A small terminal, such as a phone's.
    screen.resize(40, 8)
    screen.wait("a small screen", lambda lines: len(lines) <= 8 and has("operation")(lines) and len(lines[0]) <= 40)
    screen.resize(200, 50)
    screen.wait("a large screen", lambda lines: len(lines[0]) > 120 and has("5 background")(lines))
    screen.press("q")
    check_end(*screen.end())
    # All mounts of the user, among them those of other tests.
    screen = Screen(words, 250, 100)
    screen.wait("the list", has("mounts and servers", "written/s", mount))
    screen.press("\r")
    screen.wait("the selected one", lambda lines: " at " in lines[0] and has("1 operations")(lines))
    screen.press("\x1b")
    screen.wait("the list again", has("mounts and servers", mount))
    # SIGTERM restores the terminal too.
    os.kill(screen.pid, signal.SIGTERM)
    check_end(*screen.end())


def show_batch(program, mount, batch):
    screen = Screen([program, "top", "--interval=200ms", mount], 120, 24)
    screen.wait("operations", has("6 batches"))
    screen.press("6")
    lines = screen.wait("the batch", has(batch))
    shown = next(line for line in lines if batch in line).split()
    # Creation and content of one file, and the age after which batches expire.
    assert shown[:4] == [batch, "/job", "mounted", "2"] and shown[-1] in ("weeks", "days"), lines
    screen.press("q")
    check_end(*screen.end())


def check_end(code, output):
    assert code == 0, (code, output[-200:])
    assert output.rstrip().endswith(b"\x1b[?1049l"), output[-200:]


if len(sys.argv) > 3:
    show_batch(*sys.argv[1:])
else:
    main()
