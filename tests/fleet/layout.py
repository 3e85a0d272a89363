"""The folders that record.py writes: SERVICE/VERSION/HOST/DATE/N.htz. Labels follow from the service, version and host."""
import os

from programs import release

# By which columns the rows of each table's files are sorted (docs/fleet.md).
SORTED_BY = {
    "sessions": ["version", "session"],
    "labels": ["key", "value", "session"],
    "sites": ["function", "version", "session", "stack"],
    "stacks": ["stack", "level"],
    "frames": ["frame"],
    "buckets": ["session", "bucket"],
    "leaks": ["verdict", "function", "session"],
    "memory": ["kind", "session", "instant"],
    "processes": ["session", "process"],
}


def places(folder):
    """Yields service, version, host, date, labels and the traces of each folder."""
    for place, _, names in sorted(os.walk(folder)):
        traces = sorted(os.path.join(place, name) for name in names if name.endswith(".htz"))
        if traces:
            service, version, host, date = os.path.relpath(place, folder).split(os.sep)
            labels = {"team": "web" if service < "h" else "tools", "region": host[-1]}
            number = release(service, version)
            if number:
                labels["release"] = f"{service}-{number}"
            yield service, version, host, date, labels, traces
