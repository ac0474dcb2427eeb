"""Reads a Perfetto trace with Perfetto's own messages and holds it to the rules of the format.

Prints one JSON object about what is in it, for a test to compare; ends with an error where the trace breaks a rule. Slices
are paired as Perfetto's trace processor pairs them: events in the order of time, those of one time in the order of the file,
and each end ends the innermost slice that is open on its track.
"""

import json
import sys
from collections import Counter, defaultdict

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

CLEARED, NEEDS_INTERNED = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
BOOTTIME = 6


def value(annotation):
    kind = annotation.WhichOneof("value")
    assert kind is not None, annotation
    return getattr(annotation, kind)


def main(path):
    data = open(path, "rb").read()
    trace = messages.Trace()
    trace.ParseFromString(data)
    # Nothing unknown to the official schema, nothing in another order or form than its own writers have.
    assert trace.SerializeToString() == data, "another writer makes other bytes of it"

    tracks, events, stacks = {}, [], {}
    categories, names, annotations = {}, {}, {}
    functions, paths, mappings, frames, callstacks = {}, {}, {}, {}, {}
    first = trace.packet[0]
    assert first.sequence_flags & CLEARED and first.first_packet_on_sequence
    assert first.trace_packet_defaults.timestamp_clock_id == BOOTTIME
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        assert packet is first or packet.sequence_flags == NEEDS_INTERNED
        for table, new in (
            (categories, packet.interned_data.event_categories),
            (names, packet.interned_data.event_names),
            (annotations, packet.interned_data.debug_annotation_names),
        ):
            for entry in new:
                assert entry.iid > 0 and entry.iid not in table, entry
                table[entry.iid] = entry.name
        interned = packet.interned_data
        for table, new in (
            (functions, interned.function_names),
            (paths, interned.source_paths),
            (mappings, interned.mappings),
            (frames, interned.frames),
            (callstacks, interned.callstacks),
        ):
            for entry in new:
                assert entry.iid > 0 and entry.iid not in table, entry
                table[entry.iid] = entry
        assert len(interned.mapping_paths) == len(interned.source_paths) == len(interned.mappings)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, "described twice"
            assert not track.parent_uuid or track.parent_uuid in tracks, "parent is not there"
            tracks[track.uuid] = track
        if packet.HasField("track_event"):
            event = packet.track_event
            assert event.track_uuid in tracks, "a track that nobody described"
            # Everything that is referred to was said before.
            category = [categories[iid] for iid in event.category_iids]
            name = names[event.name_iid] if event.name_iid else event.name
            notes = {annotations[note.name_iid]: value(note) for note in event.debug_annotations}
            if event.callstack_iid:
                stack = [frames[iid] for iid in callstacks[event.callstack_iid].frame_ids]
                assert all(mappings[frame.mapping_id].path_string_ids[:] == [frame.source_path_iid] for frame in stack)
                assert all(frame.rel_pc == frame.line_number for frame in stack)
                stacks[(event.track_uuid, packet.timestamp, name)] = [
                    [functions[frame.function_name_id].str.decode(), paths[frame.source_path_iid].str.decode(), frame.line_number]
                    for frame in reversed(stack)
                ]
            events.append((packet.timestamp, event, category, name, notes))

    slices, instants, counters = [], [], defaultdict(list)
    open_slices = defaultdict(list)
    depths = Counter()
    for time, event, category, name, notes in sorted(events, key=lambda event: event[0]):
        track = tracks[event.track_uuid]
        if event.type == BEGIN:
            assert len(category) == 1
            # What no call leads to may have no flow.
            assert len(event.flow_ids) == 1 or (not event.flow_ids and not notes.get("corr_id")), (name, notes)
            open_slices[event.track_uuid].append((time, event, category[0], name, notes))
            depths[track.name] = max(depths[track.name], len(open_slices[event.track_uuid]))
        elif event.type == END:
            begin, opened, category, name, notes = open_slices[event.track_uuid].pop()
            # The pair that a viewer sees is the record: had slices crossed, the times of another would stand here.
            # One that ends before it begins has no length.
            end = max(notes["begin_ns"], notes["end_ns"])
            assert (begin, time) == (notes["begin_ns"], end), (name, begin, time, notes)
            assert notes["delta_ns"] == time - begin
            slices.append(
                {
                    "category": category,
                    "name": name,
                    "track": track.name,
                    "tid": track.thread.tid if track.HasField("thread") else None,
                    "stack": stacks.get((event.track_uuid, begin, name), []),
                    "flow": opened.flow_ids[0] if opened.flow_ids else None,
                    "notes": notes,
                }
            )
        elif event.type == INSTANT:
            instants.append({"category": category[0], "name": name, "track": track.name, "time": time, "notes": notes})
        else:
            assert event.type == COUNTER and track.HasField("counter"), event
            real = event.HasField("double_counter_value")
            number = event.double_counter_value if real else event.counter_value
            counters[track.name].append([time, number])
    assert not any(open_slices.values()), "slices without an end"

    processes = [track for track in tracks.values() if track.HasField("process")]
    assert len(processes) == 1
    json.dump(
        {
            "process": {"pid": processes[0].process.pid, "cmdline": list(processes[0].process.cmdline)},
            "threads": {track.name: track.thread.tid for track in tracks.values() if track.HasField("thread")},
            "thread_names": {
                track.thread.tid: track.thread.thread_name for track in tracks.values() if track.HasField("thread")
            },
            # The process has no name of its own on its track.
            "tracks": sorted(track.name for track in tracks.values() if not track.HasField("process")),
            "slices": slices,
            "interned": {"callstacks": len(callstacks), "frames": len(frames), "functions": len(functions)},
            "instants": instants,
            "counters": counters,
            "depths": depths,
        },
        sys.stdout,
    )


main(sys.argv[1])
