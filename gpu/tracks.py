"""What the files of a session have of a GPU's samples: the values of each metric, from pftrace, kineto and parquet."""

import glob
import json
import os
import struct


def fields(data):
    """(number, value) of a message of Protocol Buffers: ints, and bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = data[at:at + 8], at + 8
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        elif kind == 5:
            value, at = data[at:at + 4], at + 4
        else:
            raise ValueError(f"wire type {kind}")
        yield tag >> 3, value


def varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


# Numbers of Perfetto's fields: Trace.packet; TracePacket.track_event and .track_descriptor; TrackDescriptor.uuid and .name; TrackEvent.track_uuid and
# .double_counter_value.
PACKET, EVENT, DESCRIPTOR, UUID, NAME, OF_TRACK, REAL = 1, 11, 60, 1, 2, 11, 44


def of_pftrace(path, names):
    """The values of the tracks "GPU [N] METRIC (UNIT)"."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    tracks, found = {}, {}
    for number, packet in fields(data):
        if number != PACKET:
            continue
        for kind, message in fields(packet):
            if kind == DESCRIPTOR:
                told = dict(fields(message))
                name = bytes(told.get(NAME, b"")).decode()
                for metric in names:
                    if name.startswith("GPU [") and f"] {metric} (" in name:
                        tracks[told[UUID]] = metric
            elif kind == EVENT:
                told = dict(fields(message))
                if told.get(OF_TRACK) in tracks and REAL in told:
                    found.setdefault(tracks[told[OF_TRACK]], []).append(struct.unpack("<d", told[REAL])[0])
    return found


def of_kineto(path, names):
    """The values of the counters of these names."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = {}
    for event in events:
        if event.get("ph") == "C":
            for metric in names:
                if event["name"].startswith("GPU [") and f"] {metric} (" in event["name"]:
                    found.setdefault(metric, []).append(event["args"]["value"])
    return found


def of_parquet(directory, pid):
    """The values, or why they cannot be read here."""
    try:
        import pyarrow.parquet
    except ImportError:
        return {}, "pyarrow is not installed"
    paths = glob.glob(os.path.join(directory, "**", "kind=gpu_metrics", f"{pid}-*.parquet"), recursive=True)
    if len(paths) != 1:
        return {}, None
    # The file itself, without what its directories say.
    with open(paths[0], "rb") as file:
        table = pyarrow.parquet.read_table(file, columns=["metric", "value"])
    found = {}
    for metric, value in zip(table["metric"].to_pylist(), table["value"].to_pylist()):
        found.setdefault(metric, []).append(value)
    return found, None
