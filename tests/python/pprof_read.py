"""Reads a profile with Google's protobuf and the fields of pprof's profile.proto, and prints its samples as JSON.

    pprof_read.py FILE"""

import gzip
import json
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

I64, U64, BOOL, TEXT = 3, 4, 8, 9
# Fields by message: name, number, type (a message by its name), repeated. All of the format's, so that nothing is unknown.
MESSAGES = {
    "ValueType": [("type", 1, I64, False), ("unit", 2, I64, False)],
    "Label": [("key", 1, I64, False), ("str", 2, I64, False), ("num", 3, I64, False), ("num_unit", 4, I64, False)],
    "Sample": [("location_id", 1, U64, True), ("value", 2, I64, True), ("label", 3, "Label", True)],
    "Mapping": [
        ("id", 1, U64, False),
        ("memory_start", 2, U64, False),
        ("memory_limit", 3, U64, False),
        ("file_offset", 4, U64, False),
        ("filename", 5, I64, False),
        ("build_id", 6, I64, False),
        ("has_functions", 7, BOOL, False),
        ("has_filenames", 8, BOOL, False),
        ("has_line_numbers", 9, BOOL, False),
        ("has_inline_frames", 10, BOOL, False),
    ],
    "Line": [("function_id", 1, U64, False), ("line", 2, I64, False), ("column", 3, I64, False)],
    "Location": [
        ("id", 1, U64, False),
        ("mapping_id", 2, U64, False),
        ("address", 3, U64, False),
        ("line", 4, "Line", True),
        ("is_folded", 5, BOOL, False),
    ],
    "Function": [
        ("id", 1, U64, False),
        ("name", 2, I64, False),
        ("system_name", 3, I64, False),
        ("filename", 4, I64, False),
        ("start_line", 5, I64, False),
    ],
    "Profile": [
        ("sample_type", 1, "ValueType", True),
        ("sample", 2, "Sample", True),
        ("mapping", 3, "Mapping", True),
        ("location", 4, "Location", True),
        ("function", 5, "Function", True),
        ("string_table", 6, TEXT, True),
        ("drop_frames", 7, I64, False),
        ("keep_frames", 8, I64, False),
        ("time_nanos", 9, I64, False),
        ("duration_nanos", 10, I64, False),
        ("period_type", 11, "ValueType", False),
        ("period", 12, I64, False),
        ("comment", 13, I64, True),
        ("default_sample_type", 14, I64, False),
    ],
}


def profile_class():
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="pprof", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, of, is_repeated in fields:
            added = message.field.add(name=field, number=number, label=3 if is_repeated else 1)
            if isinstance(of, str):
                added.type, added.type_name = 11, f".pprof.{of}"
            else:
                added.type = of
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pprof.Profile"))


def main(path):
    with gzip.open(path) as file:
        data = file.read()
    profile = profile_class()()
    profile.ParseFromString(data)
    assert profile.SerializeToString() == data, "another writer makes other bytes of it"
    text = profile.string_table
    # What pprof itself checks.
    assert text[0] == ""
    functions = {function.id: function for function in profile.function}
    locations = {location.id: location for location in profile.location}
    assert len(functions) == len(profile.function) and len(locations) == len(profile.location) and 0 not in locations
    mappings = {mapping.id for mapping in profile.mapping}
    assert all(location.mapping_id in mappings for location in profile.location)
    types = [(text[of.type], text[of.unit]) for of in profile.sample_type]
    samples = []
    for sample in profile.sample:
        assert len(sample.value) == len(types)
        frames = []
        for number in sample.location_id:
            (line,) = locations[number].line
            function = functions[line.function_id]
            frames.append([text[function.name], text[function.filename], line.line])
        labels = {text[label.key]: text[label.str] or label.num for label in sample.label}
        samples.append({"frames": frames, "values": list(sample.value), "labels": labels})
    json.dump(
        {
            "types": types,
            "default": text[profile.default_sample_type],
            "time": profile.time_nanos,
            "duration": profile.duration_nanos,
            "texts": len(text),
            "samples": samples,
        },
        sys.stdout,
    )


main(sys.argv[1])
