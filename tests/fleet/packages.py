#!/usr/bin/env python3
"""Installs the releases of the packages that record.py runs: packages.py FOLDER.

Each release gets a folder of its own, FOLDER/PACKAGE-RELEASE, so that several are there at once. They come from PyPI, for
the system's Python.
"""
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Three releases of each package: those of the deployments 1.3, 1.4 and 1.5 of the fleet.
RELEASES = {
    "apsw": ("3.41.0.0", "3.46.1.0", "3.54.1.0"),
    "brotli": ("1.0.9", "1.1.0", "1.2.1"),
    "clang-format": ("16.0.6", "19.1.7", "23.1.3"),
    "docutils": ("0.18.1", "0.20.1", "0.23"),
    "jinja2": ("3.0.3", "3.1.2", "3.1.6"),
    "jq": ("1.4.1", "1.8.0", "1.13.0"),
    "lxml": ("4.9.4", "5.4.0", "6.1.3"),
    "markdown": ("3.4.4", "3.7", "3.11.3"),
    "msgpack": ("1.0.8", "1.1.2", "1.2.4"),
    "ninja": ("1.10.2.4", "1.11.1.4", "1.13.2"),
    "orjson": ("3.9.15", "3.10.18", "3.13.0"),
    "pillow": ("10.0.1", "11.0.0", "13.0.0"),
    "pygments": ("2.13.0", "2.17.2", "2.21.0"),
    "pyyaml": ("6.0.1", "6.0.2", "6.0.3"),
    "regex": ("2023.12.25", "2024.11.6", "2026.11.9"),
    "simplejson": ("3.18.4", "3.20.2", "4.3.0"),
    "sqlparse": ("0.4.4", "0.5.1", "0.6.1"),
    "ujson": ("5.8.0", "5.10.0", "6.1.0"),
    "zstandard": ("0.19.0", "0.22.0", "0.25.0"),
}

# What packages need. These have one release, which all deployments share.
NEEDED = {
    "jinja2": ["markupsafe==2.1.5"],
}


def install(folder, package, release):
    place = os.path.join(folder, f"{package}-{release}")
    if os.path.exists(os.path.join(place, "complete")):
        return
    words = ["--quiet", "--disable-pip-version-check", "--root-user-action", "ignore", "--no-deps", "--only-binary", ":all:"]
    words += ["--upgrade", "--target", place, f"{package}=={release}"] + NEEDED.get(package, [])
    subprocess.run(["/usr/bin/python3", "-m", "pip", "install"] + words, check=True)
    open(os.path.join(place, "complete"), "w").close()


def main():
    folder = sys.argv[1]
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(install, folder, package, release) for package in RELEASES for release in RELEASES[package]]:
            done.result()


if __name__ == "__main__":
    main()
