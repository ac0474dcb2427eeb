"""rocpd databases of midair and of AMD's rocprofv3: converted, queried, summed up and merged.

`python3 -m rocpd convert ...` and `rocpd.main(["convert", ...])` run the program rocpd of this installation, which
streams. `connect` opens databases for Python's own SQLite. `write_csv`, `write_perfetto` and `write_otf2` are AMD's."""

import os
import subprocess
import sys

from .importer import RocpdImportData

__all__ = [
    "RocpdImportData", "connect", "convert", "execute", "main", "merge", "program", "query", "summary", "write_csv",
    "write_otf2", "write_perfetto",
]  # fmt: skip

# The place of this file in an installation, and of the programs in a wheel.
_PLACE = os.path.join("lib", "python3", "site-packages", "rocpd", "__init__.py")
_WHEEL = os.path.join("midair", "_prefix", "bin", "midair")


def program():
    """The program of this file's own installation, or its bare name for PATH."""
    file = os.path.realpath(__file__)
    if file.endswith(os.sep + _PLACE):
        found = os.path.join(file[: -len(_PLACE)], "bin", "rocpd")
        if os.path.isfile(found):
            return found
    found = os.path.join(os.path.dirname(os.path.dirname(file)), _WHEEL)
    return found if os.path.isfile(found) else "rocpd"


def main(argv=None):
    """Runs a command line, this process's own if none is given, and returns the exit code."""
    words = sys.argv[1:] if argv is None else [os.fspath(word) for word in argv]
    # By the name of the program: in a wheel one file is all programs.
    return subprocess.call(["rocpd", *words], executable=program())


def _run(command, inputs, words):
    inputs = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    code = main([command, "-i", *inputs, *words])
    if code != 0:
        raise RuntimeError(f"rocpd {command} ended with exit code {code}")


def _output(output_path, output_file):
    words = []
    if output_path is not None:
        words += ["-d", output_path]
    if output_file is not None:
        words += ["-o", output_file]
    return words


def convert(inputs, formats, output_path=None, output_file=None, *options):
    """Writes the records of databases in these formats: "csv", "pftrace", ..."""
    formats = [formats] if isinstance(formats, str) else list(formats)
    _run("convert", inputs, ["-f", *formats, *_output(output_path, output_file), *options])


def query(inputs, sql, format="console", output_path=None, output_file=None, *options):
    """Runs a query over databases, and prints its answer or writes it into a file."""
    _run("query", inputs, ["--query", sql, "--format", format, *_output(output_path, output_file), *options])


def summary(inputs, format="console", output_path=None, output_file=None, *options):
    """Prints or writes calls and times by name."""
    _run("summary", inputs, ["--format", format, *_output(output_path, output_file), *options])


def merge(inputs, output_path=None, output_file=None):
    """Puts databases into one file."""
    _run("merge", inputs, _output(output_path, output_file))


def connect(input, *args, **kwargs):
    """Opens databases for reading: a path, or a list of paths."""
    return RocpdImportData(input, *args, **kwargs)


def execute(data, *args, **kwargs):
    """Runs a query over databases that are open."""
    return data.execute(*args, **kwargs)


def _write(format, connection, config, properties):
    from .output_config import output_config

    config = output_config(**properties) if config is None else config.update(**properties)
    _run("convert", connection.filenames, ["-f", format, *config.words()])
    return True


def write_csv(connection, config=None, **kwargs):
    """Writes csv files of databases that are open. The properties are those of `output_config`."""
    return _write("csv", connection, config, kwargs)


def write_perfetto(connection, config=None, **kwargs):
    """Writes a trace for Perfetto."""
    return _write("pftrace", connection, config, kwargs)


def write_otf2(connection, config=None, **kwargs):
    """Writes an OTF2 archive."""
    return _write("otf2", connection, config, kwargs)
