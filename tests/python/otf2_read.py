"""Reads an OTF2 archive with OTF2's own library, and holds it to the rules of the format.

Usage: otf2_read.py ANCHOR: prints what is in the archive as JSON. It ends with an error where events of a location run backwards
in time, where a region is left that is not the innermost one, or where a location has another number of events than its
definition says.
"""

import json
import sys

import otf2
from otf2.events import Enter, Leave, Metric


def plain(value):
    """Definitions as their names, numbers as they are."""
    return value if isinstance(value, (int, float, str)) else value.name


def word(value):
    """The last part of an enumeration's name: HIP of Paradigm.HIP."""
    return str(value).rsplit(".", 1)[-1]


def path(node):
    return [] if node is None else [*path(node.parent), [node.name, node.class_name]]


def main(anchor):
    regions, metrics, locations = [], [], []
    with otf2.reader.open(anchor) as trace:
        definitions = trace.definitions
        clock = definitions.clock_properties
        first, last = clock.global_offset, clock.global_offset + clock.trace_length
        open_regions = {location: [] for location in definitions.locations}
        counts = dict.fromkeys(definitions.locations, 0)
        times = dict.fromkeys(definitions.locations, 0)
        crossing = 0
        for location, event in trace.events:
            counts[location] += 1
            assert times[location] <= event.time, (location, event)
            assert first <= event.time <= last, (first, event.time, last)
            times[location] = event.time
            stack = open_regions[location]
            if isinstance(event, Enter):
                attributes = event.attributes or {}
                stack.append((event, {key.name: plain(value) for key, value in attributes.items()}))
            elif isinstance(event, Leave):
                at = next(at for at in reversed(range(len(stack))) if stack[at][0].region == event.region)
                crossing += at != len(stack) - 1
                enter, attributes = stack.pop(at)
                region = event.region
                regions.append(
                    {
                        "location": location.name,
                        "group": location.group.name,
                        "name": region.name,
                        "symbol": region.canonical_name,
                        "role": word(region.region_role),
                        "paradigm": word(region.paradigm),
                        "start": enter.time,
                        "end": event.time,
                        "depth": len(stack),
                        "attributes": attributes,
                    }
                )
            else:
                assert isinstance(event, Metric), event
                (member,) = event.metric.members
                metrics.append([location.name, member.name, member.unit, event.time, event.values[0]])
        for location, stack in open_regions.items():
            assert not stack, (location, stack)
            assert counts[location] == location.number_of_events, (location, counts[location])
            locations.append(
                {
                    "name": location.name,
                    "type": word(location.type),
                    "group": location.group.name,
                    "group_type": word(location.group.location_group_type),
                    "creator": getattr(location.group.creating_location_group, "name", None),
                    "place": path(location.group.system_tree_parent),
                    "events": location.number_of_events,
                }
            )
        properties = {}
        for one in definitions.location_group_properties:
            properties.setdefault(one.location_group.name, {})[one.name] = one.value
        said = {
            "resolution": clock.timer_resolution,
            "first": first,
            "last": last,
            "crossing": crossing,
            "regions": regions,
            "metrics": metrics,
            "locations": locations,
            "properties": properties,
            "domains": sorted([one.system_tree_node.name, word(one.system_tree_node_domain)]
                              for one in definitions.system_tree_node_domains),
        }
    json.dump(said, sys.stdout)


main(sys.argv[1])
