"""Sums of a profile in OpenTelemetry's format, read by OpenTelemetry's own messages."""

import json
import sys

from google.protobuf import unknown_fields
from opentelemetry.proto.profiles.v1development import profiles_pb2

data = profiles_pb2.ProfilesData()
with open(sys.argv[1], "rb") as file:
    data.ParseFromString(file.read())
d = data.dictionary
tables = (d.mapping_table, d.location_table, d.function_table, d.attribute_table, d.stack_table, d.link_table)
for table in tables:
    assert table[0] == type(table[0])(), "the first entry stands for nothing"
assert d.string_table[0] == ""
profile = data.resource_profiles[0].scope_profiles[0].profiles[0]
for message in (data, d, profile, *profile.samples, *(row for table in tables for row in table)):
    assert not list(unknown_fields.UnknownFieldSet(message)), message


def names(index):
    lines = d.location_table[index].lines
    return [d.string_table[d.function_table[line.function_index].name_strindex] for line in lines]


sums, attributes = {}, set()
for sample in profile.samples:
    stack = [name for index in d.stack_table[sample.stack_index].location_indices for name in names(index)]
    sums.setdefault(stack[0], [0, 0])[0] += sample.values[0]
    for name in set(stack):
        sums.setdefault(name, [0, 0])[1] += sample.values[0]
    for index in sample.attribute_indices:
        attribute = d.attribute_table[index]
        attributes.add(f"{d.string_table[attribute.key_strindex]}={attribute.value.string_value}")
facts = [d.attribute_table[index] for index in profile.attribute_indices]
facts = {d.string_table[fact.key_strindex]: fact.value.string_value for fact in facts}
resource = {a.key: a.value.string_value for a in data.resource_profiles[0].resource.attributes}
print(json.dumps({
    "sums": sums,
    "type": d.string_table[profile.sample_type.type_strindex],
    "period": profile.period,
    "attributes": sorted(attributes),
    "resource": resource,
    "stacks": facts["lwp.stacks"],
}))
