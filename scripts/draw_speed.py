#!/usr/bin/env python3
"""Draws the table of speeds in the README as docs/speed.svg: scripts/draw_speed.py [--check].

A row is a bar as long as its ratio to the peer; a line marks the peer's speed. --check writes nothing and fails if the
picture does not show the table.
"""
import html
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "speed.svg"
BAR, GAP, LEFT, WIDTH, SCALE = 18, 8, 430, 960, 84  # SCALE: pixels of the ratio 1
STYLE = ('text{font:14px system-ui,sans-serif;fill:#1f2328}.b{fill:#1a7f5a}.n{font-weight:600}.p{fill:#57606a}'
         '.l{stroke:#57606a;stroke-width:1.5}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.b{fill:#3fb68b}'
         '.p{fill:#8b949e}.l{stroke:#8b949e}}')


def rows():
    """Returns case, ratio and peer of each row of the first table below '## Speed'."""
    lines = (ROOT / "README.md").read_text().split("\n## Speed\n")[1].split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[begin:end]]
    case, ratio, peer = (table[0].index(name) for name in ("case", "ratio", "peer"))
    return [(row[case], float(row[ratio]), row[peer]) for row in table[2:]]


def picture(all_rows):
    height = GAP + len(all_rows) * (BAR + GAP) + 22
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
           f'<style>{STYLE}</style>']
    for i, (case, ratio, peer) in enumerate(all_rows):
        y = GAP + i * (BAR + GAP)
        length = ratio * SCALE
        out.append(f'<text x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{html.escape(case)}</text>'
                   f'<rect class="b" x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR}" rx="2"/>'
                   f'<text x="{LEFT + length + 8:.0f}" y="{y + 14}"><tspan class="n">{ratio:.2f}</tspan> '
                   f'<tspan class="p">× {html.escape(peer)}</tspan></text>')
    out.append(f'<line class="l" x1="{LEFT + SCALE}" y1="2" x2="{LEFT + SCALE}" y2="{height - 20}"/>'
               f'<text class="p" x="{LEFT + SCALE}" y="{height - 5}" text-anchor="middle">speed of the peer</text>'
               "</svg>")
    return "\n".join(out) + "\n"


def main():
    drawn = picture(rows())
    if sys.argv[1:] == ["--check"]:
        if not PICTURE.exists() or PICTURE.read_text() != drawn:
            sys.exit("docs/speed.svg does not show the table of the README; run scripts/draw_speed.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PICTURE.write_text(drawn)


if __name__ == "__main__":
    main()
