"""Writes a wheel: FILE VERSION TAG TIME SUMMARY README, and lines "PLACE<tab>SOURCE" of its files on the standard input.

Its bytes depend on nothing else: the order is the names', the times are TIME.
"""

import base64
import hashlib
import os
import sys
import time
import zipfile

to, version, tag, seconds, summary, readme = sys.argv[1:]
MOMENT = time.gmtime(max(int(seconds), 315532800))[:6]  # A zip file begins in 1980.
INFO = f"midair-{version}.dist-info"
SCRIPTS = ("midair", "rocprofv3", "rocprof-attach", "rocprof-compute", "rocpd", "rocprofv3-avail")

files = {}
for line in sys.stdin.read().splitlines():
    place, source = line.split("\t")
    with open(source, "rb") as file:
        files[place] = (file.read(), bool(os.stat(source).st_mode & 0o111))

with open(readme, encoding="utf-8") as file:
    text = file.read()
files[f"{INFO}/METADATA"] = (
    f"Metadata-Version: 2.1\nName: midair\nVersion: {version}\nSummary: {summary}\nLicense: MIT\n"
    "Requires-Python: >=3.8\nClassifier: Operating System :: POSIX :: Linux\n"
    f"Description-Content-Type: text/markdown\n\n{text}".encode(),
    False,
)
files[f"{INFO}/WHEEL"] = (
    f"Wheel-Version: 1.0\nGenerator: midair-xtask\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    False,
)
entries = "".join(f"{name} = midair._programs:{name.replace('-', '_')}\n" for name in SCRIPTS)
files[f"{INFO}/entry_points.txt"] = (f"[console_scripts]\n{entries}".encode(), False)

record = "".join(
    f"{place},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
    for place, (data, _) in sorted(files.items())
)
files[f"{INFO}/RECORD"] = ((record + f"{INFO}/RECORD,,\n").encode(), False)

with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
    for place, (data, executable) in sorted(files.items()):
        entry = zipfile.ZipInfo(place, MOMENT)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        wheel.writestr(entry, data)
