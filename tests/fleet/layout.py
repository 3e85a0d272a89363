"""The folders that record.py writes: SERVICE/VERSION/HOST/DATE/N.htz. Labels follow from the service and the host."""
import os


def places(folder):
    """Yields service, version, host, date, labels and the traces of each folder."""
    for place, _, names in sorted(os.walk(folder)):
        traces = sorted(os.path.join(place, name) for name in names if name.endswith(".htz"))
        if traces:
            service, version, host, date = os.path.relpath(place, folder).split(os.sep)
            labels = {"team": "web" if service < "h" else "tools", "region": host[-1]}
            yield service, version, host, date, labels, traces
