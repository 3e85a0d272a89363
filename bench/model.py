"""Predicts how many events a second a machine with more cores would record, and which part would reach its limit first.

The inputs are costs per event that `bench/growth.py` measures. A stage of the recorder is the group of its threads that have the
same name. All events pass through each stage, so the busiest thread of a stage limits the whole recording.
"""
import dataclasses

NS = 1e9
# The most recorder threads that the model uses, as a share of the cores.
RECORDER_SHARE = 4
# A number of recorder threads is enough if more of them would raise the limit by less than this.
NEGLIGIBLE = 0.01
# A stage that takes less than this per event never limits anything.
NEGLIGIBLE_NS = 1.0


@dataclasses.dataclass
class Stage:
    """The CPU time per event of a stage's busiest thread. With R recorder threads it is what was measured with R, or `serial_ns +
    divided_ns / R` if that was not measured."""

    name: str
    serial_ns: float
    divided_ns: float
    measured_ns: dict

    def ns(self, recorder_threads):
        return self.measured_ns.get(recorder_threads, self.serial_ns + self.divided_ns / recorder_threads)

    def limit(self, recorder_threads):
        ns = self.ns(recorder_threads)
        return NS / ns if ns else float("inf")


@dataclasses.dataclass
class Costs:
    """What an event costs: CPU time in the program, alone and recorded, and in the recorder; and bytes in the file."""

    alone_ns: float
    program_ns: float
    recorder_ns: float
    stages: list
    file_bytes: float
    disk_bytes_per_s: float

    @property
    def is_divided(self):
        return any(len(stage.measured_ns) > 1 for stage in self.stages)

    @property
    def working_stages(self):
        """The stages that take a noticeable time, with any number of recorder threads."""
        return [stage for stage in self.stages if max(stage.measured_ns.values()) >= NEGLIGIBLE_NS]


def stages(busiest):
    """Makes the stages from the ns per event of each stage's busiest thread, measured with several numbers of recorder threads."""
    names = sorted({name for at in busiest.values() for name in at})
    working = lambda at: {name for name in at if at[name] >= NEGLIGIBLE_NS}
    # One recorder thread may do all the work in one stage that several threads share between stages. Such a run says nothing
    # about the stages of the others.
    alike = [number for number, at in busiest.items() if working(at) == working(busiest[max(busiest)])]
    made = []
    for name in names:
        measured = {number: at.get(name, 0.0) for number, at in busiest.items()}
        made.append(Stage(name, *fit({number: measured[number] for number in alike}), measured))
    return made


def fit(busiest):
    """Fits `serial + divided / N` to the ns per event that were measured with N recorder threads. Neither part is negative."""
    if len(busiest) == 1:
        return next(iter(busiest.values())), 0.0
    xs, ys = [1 / number for number in busiest], list(busiest.values())
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    divided = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / sum((x - mean_x) ** 2 for x in xs)
    serial = mean_y - divided * mean_x
    if divided < 0:
        return mean_y, 0.0
    if serial < 0:
        return 0.0, sum(x * y for x, y in zip(xs, ys)) / sum(x * x for x in xs)
    return serial, divided


def wanted(costs, cores):
    """The events a second of the program alone, if it keeps all cores busy."""
    return cores * NS / costs.alone_ns


def limits(costs, cores, recorder_threads):
    """The highest number of events a second that each part allows."""
    found = {"all cores": cores * NS / (costs.program_ns + costs.recorder_ns)}
    for stage in costs.stages:
        found[stage.name] = stage.limit(recorder_threads)
    found["file"] = costs.disk_bytes_per_s / costs.file_bytes
    return found


def first(found):
    """The part that reaches its limit first, and that limit."""
    return min(found.items(), key=lambda item: item[1])


def recorder_threads(costs, cores):
    """The fewest recorder threads, up to a quarter of the cores, that allow as many events as that quarter does."""
    most = max(1, cores // RECORDER_SHARE) if costs.is_divided else 1
    _, best = first(limits(costs, cores, most))
    enough = (number for number in range(1, most) if first(limits(costs, cores, number))[1] >= best * (1 - NEGLIGIBLE))
    return next(enough, most)
