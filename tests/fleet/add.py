#!/usr/bin/env python3
"""Adds the traces that record.py wrote to a dataset: add.py PROGRAM FOLDER DATASET."""
import subprocess
import sys

from layout import places

program, folder, dataset = sys.argv[1:4]
for service, version, host, date, labels, traces in places(folder):
    words = ["--service", service, "--version", version, "--host", host, "--date", date]
    words += [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
    subprocess.run([program, "add", dataset] + traces + words, check=True, stdout=subprocess.DEVNULL)
