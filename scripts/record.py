#!/usr/bin/env python3
"""Records what a command prints on a terminal as an animated SVG: every frame is its true output at its true time.

    scripts/record.py docs/run.svg 'harmonics run samples/mnist_cnn.hmx ...'

The command runs under bash in a pseudo-terminal of --columns by --rows, with the build's programs on the path.
If it fails, nothing is written and the script ends with its exit code.
"""
import argparse
import fcntl
import html
import os
import pty
import re
import select
import struct
import sys
import termios
import time

COLORS = {"31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff", "35": "#d2a8ff", "36": "#76e3ea",
          "2": "#8b949e"}
ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n])")


class Screen:
    """Rows of (character, color); handles CR, LF, erase to end of line, cursor up, colors and wrapping."""

    def __init__(self, columns):
        self.columns, self.rows, self.row, self.column, self.color = columns, [[]], 0, 0, None

    def write(self, text):
        for code, kind, cr, lf, char in (m.groups() for m in ESCAPE.finditer(text)):
            if cr:
                self.column = 0
            elif lf:
                self.down()
            elif char:
                self.put(char)
            elif kind == "K":
                del self.rows[self.row][self.column:]
            elif kind == "A":
                self.row = max(0, self.row - int(code or 1))
            elif kind == "m":
                self.color = next((COLORS[c] for c in code.split(";") if c in COLORS), None)

    def down(self):
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def put(self, char):
        if self.column == self.columns:
            self.down()
            self.column = 0
        row = self.rows[self.row]
        row.extend([(" ", None)] * (self.column + 1 - len(row)))
        row[self.column] = (char, self.color)
        self.column += 1

    def shown(self):
        return tuple(tuple(row) for row in self.rows)


def record(command, columns, rows):
    """[(seconds, rows of the screen)], the exit code."""
    child, master = pty.fork()
    if child == 0:
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = ":".join(os.path.join(root, "build", preset, "bin") for preset in ("release", "ci"))
        os.environ.update(TERM="xterm-256color", PATH=path + ":" + os.environ["PATH"])
        os.execvp("bash", ["bash", "-c", command])
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    screen, frames, begin, kept = Screen(columns), [], time.monotonic(), b""
    screen.write("$ " + command.replace("\n", "\r\n") + "\r\n")
    frames.append((0.0, screen.shown()))
    while True:
        select.select([master], [], [])
        try:
            data = os.read(master, 65536)
        except OSError:  # the end of a pseudo-terminal
            data = b""
        if not data:
            break
        kept += data
        whole = max(kept.rfind(end) for end in (b"\r", b"\n", b"s", b"K")) + 1  # never splits a character
        screen.write(kept[:whole].decode("utf-8", "replace"))
        kept = kept[whole:]
        frames.append((time.monotonic() - begin, screen.shown()))
    screen.write(kept.decode("utf-8", "replace"))
    frames.append((time.monotonic() - begin, screen.shown()))
    return frames, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def spans(row):
    """Runs of one color as tspans."""
    parts, at = [], 0
    while at < len(row):
        end = at
        while end < len(row) and row[end][1] == row[at][1]:
            end += 1
        text = html.escape("".join(char for char, _ in row[at:end]))
        parts.append(f'<tspan fill="{row[at][1]}">{text}</tspan>' if row[at][1] else text)
        at = end
    return "".join(parts)


def svg(frames, columns, hold):
    """A text element for every content that a row ever has, visible while it has it."""
    total = frames[-1][0] + hold
    height = max(len(rows) for _, rows in frames)
    style, texts = [], []
    for line in range(height):
        begin, content = None, None
        for at, rows in frames + [(total, ())]:
            now = rows[line] if line < len(rows) else ()
            if now == content:
                continue
            if content:
                name = f"t{len(texts)}"
                first, last = 100 * begin / total, 100 * at / total
                before = f"0%,{first:.3f}%{{visibility:hidden}}" if first > 0 else ""
                after = f"{last:.3f}%,100%{{visibility:hidden}}" if last < 100 else ""
                if before or after:
                    style.append(f"@keyframes {name}{{{before}{first + 0.001:.3f}%{{visibility:visible}}{after}}}"
                                 f".{name}{{visibility:hidden;animation:{name} {total:.2f}s step-end infinite}}")
                texts.append(f'<text class="{name}" y="{30 + 19 * line}">{spans(content)}</text>')
            begin, content = at, now
    width = 8.43 * columns + 32
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {26 + 19 * height}" width="{width:.0f}">'
            f'<style>text{{font:14px ui-monospace,"DejaVu Sans Mono",Menlo,monospace;fill:#e6edf3;white-space:pre}}'
            f'{"".join(style)}</style><rect width="100%" height="100%" rx="8" fill="#0d1117"/>'
            f'<g xml:space="preserve" transform="translate(16 0)">{chr(10).join(texts)}</g></svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("command")
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--hold", type=float, default=4, help="seconds that the last frame stays")
    arguments = parser.parse_args()
    frames, code = record(arguments.command, arguments.columns, arguments.rows)
    if code != 0:
        sys.stderr.write("\n".join("".join(char for char, _ in row) for row in frames[-1][1]) + "\n")
        sys.exit(code if code > 0 else 1)
    with open(arguments.file, "w", encoding="utf-8") as out:
        out.write(svg(frames, arguments.columns, arguments.hold))
    print(f"{arguments.file}: {len(frames)} frames, {frames[-1][0]:.1f} s")


main()
