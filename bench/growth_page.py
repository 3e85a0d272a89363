"""Writes the page *How cost grows* and draws its picture, from what `bench/growth.py` measured."""
import math
import textwrap

import chart
import model
import run

CORES = (2, 4, 8, 16, 32, 64)
# What the threads of a stage do, by the stage's name.
MEANINGS = {
    "drain": "empties the rings and orders events; without `pair`, it does the work of `pair` too",
    "order": "sorts",
    "pair": "pairs frees with allocations, encodes events",
    "write": "compresses and writes",
}
# The name and the colour of each tool in the picture.
TOOLS = {"base": ("alone", 0), "ours": ("heaptrack", 1), "kde": ("KDE's heaptrack", 2)}
# The text of the page is wrapped at this column.
LINE_LENGTH = 150


def model_costs(found):
    """The inputs of the model, from the row with the most threads."""
    row = (found["recorder_threads"] or found["threads"])[-1]
    ours, stages = row["ours"], model.stages(found["busiest"])
    return model.Costs(row["base"]["program_ns"], ours["program_ns"], ours["recorder_ns"], stages, ours["file_bytes"], found["disk"])


def millions(rate):
    if math.isinf(rate):
        return "-"
    digits = 2 if rate < 1e6 else 1 if rate < 100e6 else 0
    return f"{rate / 1e6:,.{digits}f} M"


def count(number):
    if number >= 1_000_000:
        return f"{number / 1e6:g} million"
    return f"{number:,}"


def growth_table(first, key, rows):
    lines = [
        f"| {first} | events/s alone | recorded | KDE | ns in the program: alone / recorded / KDE | ns in the recorder: ours / KDE | bytes in our file |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        base, ours, kde = row["base"], row["ours"], row.get("kde")
        lines.append(
            f"| {count(row[key])} | {millions(base['rate'])} | {millions(ours['rate'])} | {millions(kde['rate']) if kde else '-'} "
            f"| {base['program_ns']:.0f} / {ours['program_ns']:.0f} / {format(kde['program_ns'], '.0f') if kde else '-'} "
            f"| {ours['recorder_ns']:.0f} / {format(kde['recorder_ns'], '.0f') if kde else '-'} | {ours['file_bytes']:.2f} |"
        )
    return "\n".join(lines)


def from_to(rows, key, unit):
    """Compares the first row with the last."""
    one, last = rows[0], rows[-1]
    names = [f"{count(row[key])} {unit if row[key] > 1 else unit.removesuffix('s')}" for row in (one, last)]
    hook = lambda row: row["ours"]["program_ns"] - row["base"]["program_ns"]
    said = (
        f"With {names[0]}, an event costs our recorder {one['ours']['recorder_ns']:.0f} ns, and the program {hook(one):.0f} ns more than alone; "
        f"with {names[1]}, {last['ours']['recorder_ns']:.0f} ns and {hook(last):.0f} ns."
    )
    if "kde" in one and "kde" in last:
        times = [row["ours"]["rate"] / row["kde"]["rate"] for row in (one, last)]
        said += f" Ours records {times[0]:.1f} times as many events a second as KDE's with {names[0]}, and {times[1]:.1f} times as many with {names[1]}."
    return said


def synthetic_table(rows):
    names = list(dict.fromkeys(name for row in rows for name in row["stages"]))
    lines = [
        "| threads | live blocks | " + " | ".join(f"{name}, ns an event" for name in names) + " | bytes in the file |",
        "|---|---|" + "---|" * len(names) + "---|",
    ]
    for row in rows:
        cells = " | ".join(f"{row['stages'][name]:.1f}" if name in row["stages"] else "-" for name in names)
        lines.append(f"| {row['threads']} | {count(row['live'])} | {cells} | {row['file_bytes']:.2f} |")
    return "\n".join(lines)


def recorder_section(found):
    if not found["recorder_threads"]:
        return "This binary has no option `--recorder-threads`, so this part was not measured. One thread empties the rings of all threads."
    names = [stage.name for stage in model_costs(found).working_stages]
    lines = [
        f"The program has {found['recorder_threads'][0]['threads']} threads and {count(found['recorder_threads'][0]['live'])} live blocks. "
        f"The machine has {found['cores']} cores, which the program and the recorder share, so more recorder threads bring little here. The busiest thread of each "
        "stage shows what they would bring on a larger machine.",
        "",
        "| recorder threads | events/s | ns in the recorder | " + " | ".join(f"busiest `{name}` thread, ns" for name in names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for row in found["recorder_threads"]:
        busiest = found["busiest"][row["number"]]
        cells = " | ".join(f"{busiest[name]:.1f}" if name in busiest else "-" for name in names)
        lines.append(f"| {row['number']} | {millions(row['ours']['rate'])} | {row['ours']['recorder_ns']:.0f} | {cells} |")
    return "\n".join(lines)


def cost_table(costs):
    lines = [
        "| cost of an event | symbol | measured |",
        "|---|---|---|",
        f"| CPU time in the program alone | a | {costs.alone_ns:.1f} ns |",
        f"| CPU time in the recorded program, with the work between two events | p | {costs.program_ns:.1f} ns |",
        f"| CPU time in the recorder, all threads | r | {costs.recorder_ns:.1f} ns |",
    ]
    for stage in costs.working_stages:
        meaning = f" ({MEANINGS[stage.name]})" if stage.name in MEANINGS else ""
        lines.append(f"| stage `{stage.name}`{meaning}: serial part | s | {stage.serial_ns:.1f} ns |")
        if costs.is_divided:
            lines.append(f"| stage `{stage.name}`: part that the recorder threads share | q | {stage.divided_ns:.1f} ns |")
    lines.append(f"| bytes in the file | b | {costs.file_bytes:.2f} bytes |")
    lines.append(f"| speed of this machine's disk | D | {costs.disk_bytes_per_s / 1e6:,.0f} MB/s |")
    return "\n".join(lines)


def part(name):
    return {"all cores": "all cores are busy", "file": "the disk"}.get(name, f"the stage `{name}`")


def model_table(costs):
    names = [stage.name for stage in costs.working_stages]
    lines = [
        "| cores | recorder threads | program alone | all cores | " + " | ".join(f"`{name}`" for name in names) + " | file | first limit |",
        "|---|---|---|---|" + "---|" * len(names) + "---|---|",
    ]
    for cores in CORES:
        threads = model.recorder_threads(costs, cores)
        limits = model.limits(costs, cores, threads)
        cells = " | ".join(millions(limits[name]) for name in ["all cores", *names, "file"])
        name, limit = model.first(limits)
        lines.append(f"| {cores} | {threads} | {millions(model.wanted(costs, cores))} | {cells} | {part(name)}, {millions(limit)} |")
    return "\n".join(lines)


def verdict(costs):
    cores = CORES[-1]
    threads = model.recorder_threads(costs, cores)
    limits = model.limits(costs, cores, threads)
    name, limit = model.first(limits)
    wanted = model.wanted(costs, cores)
    if name == "all cores":
        return (
            f"**On {cores} cores no single part would be the limit: all cores would be busy, at {millions(limit)} events a second.** "
            f"The program alone would make {millions(wanted)}, so recording it would take {wanted / limit:.1f} times as long."
        )
    each = limit / cores
    shown = {"all cores", "file", *(stage.name for stage in costs.working_stages)} - {name}
    later = sorted((limits[other], other) for other in shown)
    next_parts = ", ".join(f"{other if other in ('all cores', 'file') else f'`{other}`'} ({millions(rate)})" for rate, other in later)
    return (
        f"**On {cores} cores, {part(name)} would reach its limit first, at {millions(limit)} events a second.** This program, which does nothing but "
        f"malloc and free, would make {millions(wanted)} alone, so recording it would take {wanted / limit:.0f} times as long. A program whose {cores} "
        f"threads make fewer than {each / 1e3:,.0f},000 events a second each would not wait for the recorder. The next limits are: {next_parts}."
    )


def panels(found, costs):
    def lines(rows, key, what, tools):
        pick = lambda tool: [(row[key], row[tool][what]) for row in rows if tool in row and row[tool][what] > 0]
        return [chart.Line(*TOOLS[tool], pick(tool)) for tool in tools if pick(tool)]

    stages = [stage.name for stage in costs.working_stages]
    colours = {"all cores": 1, **{name: colour for colour, name in enumerate(stages, 2)}}
    colours["file"] = len(colours) + 1
    drawn = []
    for key, rows, x_name in (("threads", found["threads"], "threads of the program"), ("live", found["live"], "live blocks")):
        drawn.append(chart.Panel("Events a second", x_name, lines(rows, key, "rate", ("base", "ours", "kde"))))
        drawn.append(chart.Panel("CPU time of the recorder per event, ns", x_name, lines(rows, key, "recorder_ns", ("ours", "kde"))))
    numbers = found["recorder_threads"]
    if numbers:
        rows = [{"number": row["number"], "ours": row["ours"]} for row in numbers]
        drawn.append(chart.Panel("Events a second", "recorder threads", lines(rows, "number", "rate", ("ours",))))
        busiest = [
            chart.Line(name, colours[name], [(number, at[name]) for number, at in found["busiest"].items() if at.get(name)]) for name in stages
        ]
        drawn.append(chart.Panel("Busiest thread of each stage per event, ns", "recorder threads", busiest))
    at = {cores: model.limits(costs, cores, model.recorder_threads(costs, cores)) for cores in CORES}
    predicted = [chart.Line("program alone", 0, [(cores, model.wanted(costs, cores)) for cores in CORES])]
    for name, colour in colours.items():
        points = [(cores, at[cores][name]) for cores in CORES if math.isfinite(at[cores][name])]
        predicted.append(chart.Line(name, colour, points))
    drawn.append(chart.Panel("Model: the limit of each part, events a second", "cores", predicted))
    return drawn


def picture(found):
    return chart.draw("How the cost of recording grows", panels(found, model_costs(found)))


def page(found, options, load, picture):
    costs, sizes = model_costs(found), options.sizes
    most = sizes.threads[-1]
    trial = "\nThis run was short, to try the script. Its figures mean little.\n" if options.quick else ""
    busy = "\nOther programs kept all cores busy, so the events a second of the tables are much too low.\n" if load >= found["cores"] else ""
    kde = "" if found["kde"] else "\nKDE's heaptrack is not installed here, so it was not measured.\n"
    recorder_words, stage_cost = "R is 1, because the binary has one recorder thread.", "s"
    if costs.is_divided:
        recorder_words = (
            "R is the smallest number, up to a quarter of the cores, with which the result is the highest. If R was measured, the model takes the measured cost of "
            "each stage. Otherwise it takes s + q / R, fitted to the measurements that have the same stages as the one with the most recorder threads."
        )
        stage_cost = "(s + q / R)"
    text = f"""# How cost grows

How many events a second are recorded, and what an event costs, with more threads of the program, more live blocks and more recorder threads; and what
that means for a machine with 64 cores. Made by `make bench` (`bench/growth.py`). [overhead.md](overhead.md) has the costs of real programs.

Machine: {run.machine()}; load {load:.1f} at the start. Best of {options.rounds}; KDE's heaptrack one round.
{trial}{busy}{kde}
{verdict(costs)}

![Events a second and the recorder's CPU time per event, against threads and live blocks, and the limits that the model predicts](images/{picture})

The program is `bench/live_blocks.cpp`: its threads together hold a number of live blocks and replace random ones, and do nothing else. An *event* is an
allocation or a free. A recording has {sizes.events / 1000:g} million events, and {sizes.kde_events / 1000:g} million with KDE's heaptrack because it is slow, plus one for each live block.
*Events/s* are events divided by wall time, without the wall time of a run that has no events. *ns in the program* is the program's
CPU time per event, which includes the profiler's library. *ns in the recorder* is the CPU time of all other processes per event. Names are not
looked up (`--no-symbols`); apart from that, both tools run with their default options.

## Threads of the program

{count(sizes.usual_live)} live blocks in total. {from_to(found["threads"], "threads", "threads")}

{growth_table("threads", "threads", found["threads"])}

## Live blocks

{sizes.usual_threads} threads. {from_to(found["live"], "live", "live blocks")}

{growth_table("live blocks", "live", found["live"])}

## Recorder threads

{recorder_section(found)}

## The recorder alone

The collector's threads, with {sizes.synthetic_events / 1e6:g} million events that a test writes into the rings (`crates/collector/examples/throughput.rs`). No program and no
hook runs, so this shows only the costs of the recorder.

{synthetic_table(found["synthetic"])}

## A model for more cores

The model takes the costs of an event that were measured with {most} threads and {count(sizes.usual_live)} live blocks:

{cost_table(costs)}

A stage is the group of the recorder's threads with one name, and its cost is that of its busiest thread. For C cores and R recorder threads, the highest number of events
a second is the least of these limits:

- all cores: C / (p + r), because the program and the recorder share the cores
- each stage: 1 / {stage_cost}, because every event passes through it
- the file: D / b

The program alone would make C / a. {recorder_words} These are events a second that each part allows:

{model_table(costs)}

When a part other than *all cores* is the limit, the program waits for the recorder, and some cores are idle. The model does not know what {CORES[-1]} cores do to each other: memory
that several processors share, the bandwidth of memory, or a lower clock when all cores are busy. These make the program and the recorder slower, so real
limits are lower. The program's CPU time includes the system calls by which its threads wait for room in their rings.
"""
    return wrapped(text)


def wrapped(text):
    """Wraps all paragraphs, except for tables, headings, lists and pictures."""
    fill = lambda part: textwrap.fill(part, LINE_LENGTH, break_long_words=False, break_on_hyphens=False)
    parts = text.strip().split("\n\n")
    return "\n\n".join(part if part.startswith(("|", "#", "-", "!")) else fill(part) for part in parts) + "\n"
