"""Draws small line charts as one SVG file. Both axes are logarithmic.

The picture has a background of its own, and its style sheet has a second set of colours for readers who prefer dark pages. Each line
has its own marker and its name at its end, so colours are not needed to tell lines apart.
"""
import dataclasses
import html
import math

WIDTH, HEIGHT, COLUMNS = 480, 300, 2
LEFT, RIGHT, TOP, BOTTOM = 58, 132, 44, 48
LABEL_HEIGHT = 15
MARKERS = ("circle", "square", "triangle", "diamond", "ring", "cross")
COLOURS = 8
STYLE = """
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 14px; }
.quiet { fill: #57606a; }
.page { fill: #ffffff; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.line { fill: none; stroke-width: 2; }
.c0 { stroke: #6e7781; } .f0 { fill: #6e7781; }
.c1 { stroke: #0969da; } .f1 { fill: #0969da; }
.c2 { stroke: #bc4c00; } .f2 { fill: #bc4c00; }
.c3 { stroke: #1a7f37; } .f3 { fill: #1a7f37; }
.c4 { stroke: #8250df; } .f4 { fill: #8250df; }
.c5 { stroke: #bf3989; } .f5 { fill: #bf3989; }
.c6 { stroke: #1b7c83; } .f6 { fill: #1b7c83; }
.c7 { stroke: #7d4e00; } .f7 { fill: #7d4e00; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.quiet { fill: #9da7b3; }
.page { fill: #0d1117; }
.grid { stroke: #30363d; }
.c0 { stroke: #9da7b3; } .f0 { fill: #9da7b3; }
.c1 { stroke: #58a6ff; } .f1 { fill: #58a6ff; }
.c2 { stroke: #f0883e; } .f2 { fill: #f0883e; }
.c3 { stroke: #3fb950; } .f3 { fill: #3fb950; }
.c4 { stroke: #bc8cff; } .f4 { fill: #bc8cff; }
.c5 { stroke: #f778ba; } .f5 { fill: #f778ba; }
.c6 { stroke: #39c5cf; } .f6 { fill: #39c5cf; }
.c7 { stroke: #d29922; } .f7 { fill: #d29922; }
}
"""


@dataclasses.dataclass
class Line:
    name: str
    colour: int  # the first eight differ
    points: list  # pairs of x and y, both above 0


@dataclasses.dataclass
class Panel:
    title: str
    x_name: str
    lines: list


def short(number):
    """A number for an axis: 2000000 is 2M."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g}{letter}"
    return f"{number:.3g}"


def ticks(low, high):
    """1, 2 and 5 times a power of ten, from the last one that is not above `low` to the first that is not below `high`. Powers of ten alone if there are many."""
    steps = (1, 2, 5) if high / low < 300 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = [step * 10.0**power for power in powers for step in steps]
    start = max(tick for tick in every if tick <= low * 1.001)
    end = min(tick for tick in every if tick >= high * 0.999)
    return [tick for tick in every if start <= tick <= end]


def marker(kind, colour, x, y):
    fill, stroke = f'class="f{colour}"', f'class="line c{colour}"'
    if kind == "circle":
        return f'<circle {fill} cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    if kind == "square":
        return f'<rect {fill} x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
    if kind == "triangle":
        return f'<path {fill} d="M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z"/>'
    if kind == "diamond":
        return f'<path {fill} d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z"/>'
    if kind == "ring":
        return f'<circle {stroke} cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'
    return f'<path {stroke} d="M{x - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7"/>'


def apart(heights):
    """Moves labels, given by their heights from top to bottom, so that none covers another."""
    placed = []
    for height in heights:
        placed.append(max(height, placed[-1] + LABEL_HEIGHT) if placed else height)
    excess = placed[-1] - (HEIGHT - BOTTOM) if placed else 0
    if excess > 0:
        for index in reversed(range(len(placed))):
            below = placed[index + 1] - LABEL_HEIGHT if index + 1 < len(placed) else HEIGHT - BOTTOM
            placed[index] = min(placed[index], below)
    return placed


def draw_panel(panel):
    points = [point for line in panel.lines for point in line.points]
    xs = sorted({x for x, _ in points})
    heights = ticks(min(y for _, y in points), max(y for _, y in points))
    if len(heights) == 1:
        heights.append(heights[0] * 10)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(x):
        if xs[0] == xs[-1]:
            return (LEFT + right) / 2
        return LEFT + (right - LEFT) * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])

    def down(y):
        return bottom - (bottom - TOP) * math.log(y / heights[0]) / math.log(heights[-1] / heights[0])

    out = [f'<text class="title" x="{LEFT - 42}" y="22">{html.escape(panel.title)}</text>']
    for tick in heights:
        out.append(f'<path class="grid" d="M{LEFT} {down(tick):.1f}H{right}"/>')
        out.append(f'<text class="quiet" x="{LEFT - 8}" y="{down(tick) + 4:.1f}" text-anchor="end">{short(tick)}</text>')
    for x in xs:
        out.append(f'<text class="quiet" x="{across(x):.1f}" y="{bottom + 18}" text-anchor="middle">{short(x)}</text>')
    out.append(f'<text class="quiet" x="{(LEFT + right) / 2:.1f}" y="{bottom + 38}" text-anchor="middle">{html.escape(panel.x_name)}</text>')
    lines = sorted((line for line in panel.lines if line.points), key=lambda line: -line.points[-1][1])
    labels = apart([down(line.points[-1][1]) for line in lines])
    for line, label in zip(lines, labels):
        colour, places = line.colour % COLOURS, [(across(x), down(y)) for x, y in line.points]
        out.append(f'<path class="line c{colour}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in places) + '"/>')
        out += [marker(MARKERS[line.colour % len(MARKERS)], colour, x, y) for x, y in places]
        out.append(f'<text class="f{colour}" x="{places[-1][0] + 10:.1f}" y="{label + 4:.1f}">{html.escape(line.name)}</text>')
    return "\n".join(out)


def draw(title, panels):
    """Returns the SVG text of all panels, two in a row."""
    rows = math.ceil(len(panels) / COLUMNS)
    width, height = WIDTH * COLUMNS, HEIGHT * rows
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="6"/>',
    ]
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        out.append(f'<g transform="translate({x} {y})">\n{draw_panel(panel)}\n</g>')
    return "\n".join(out) + "\n</svg>\n"
