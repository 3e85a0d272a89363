"""Decodes what `heaptrack --push` sends, with the messages of others.

    decode.py otlp FILE          the gzip of an ExportProfilesServiceRequest, decoded with opentelemetry-proto
    decode.py parca FILE OUT     a WriteRawRequest in a frame of gRPC-Web; the profile in it is written to OUT

Prints JSON. Fails if the message breaks a rule of its format.
"""
import gzip
import json
import sys


def otlp(data):
    from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service

    request = service.ExportProfilesServiceRequest()
    request.ParseFromString(gzip.decompress(data))
    size = request.ByteSize()
    request.DiscardUnknownFields()
    assert request.ByteSize() == size, "every field is known"
    tables = request.dictionary
    names = ["mapping", "location", "function", "link", "attribute", "stack"]
    for name in names:
        table = getattr(tables, name + "_table")
        assert len(table) > 0 and table[0].ByteSize() == 0, f"index 0 of {name}_table is its zero value"
        texts = [entry.SerializeToString(deterministic=True) for entry in table]
        assert len(set(texts)) == len(texts), f"{name}_table has an entry twice"
    strings = list(tables.string_table)
    assert strings[0] == "" and len(set(strings)) == len(strings)
    used = set()

    def function_name(line):
        assert 0 < line.function_index < len(tables.function_table)
        function = tables.function_table[line.function_index]
        assert function.filename_strindex < len(strings)
        return strings[function.name_strindex]

    def stack_names(index):
        assert 0 < index < len(tables.stack_table)
        used.add(index)
        names = []
        for location_index in tables.stack_table[index].location_indices:
            assert 0 < location_index < len(tables.location_table)
            location = tables.location_table[location_index]
            assert location.mapping_index < len(tables.mapping_table)
            names += [function_name(line) for line in location.lines]
        assert names, "a stack has functions"
        return names

    [resource] = request.resource_profiles
    [scope] = resource.scope_profiles
    sums, functions, times = {}, {}, set()
    for profile in scope.profiles:
        kind = strings[profile.sample_type.type_strindex]
        assert kind not in sums, "a kind of value has one profile"
        assert strings[profile.sample_type.unit_strindex] == ("bytes" if kind.endswith("space") else "count")
        times.add((profile.time_unix_nano, profile.duration_nano))
        sums[kind] = 0
        for sample in profile.samples:
            [value] = sample.values
            sums[kind] += value
            for name in set(stack_names(sample.stack_index)):
                key = f"{kind}/{name}"
                functions[key] = functions.get(key, 0) + value
    assert len(times) == 1 and len(used) == len(tables.stack_table) - 1, "every stack is used"
    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    files = sorted({strings[entry.filename_strindex] for entry in tables.mapping_table})
    return {"sums": sums, "functions": functions, "attributes": attributes, "scope": scope.scope.name,
            "files": files, "strings": strings}


def parca(data, out):
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    assert data[0] == 0 and int.from_bytes(data[1:5], "big") == len(data) - 5, "one frame of gRPC-Web"
    file = descriptor_pb2.FileDescriptorProto(name="profilestore.proto", package="parca", syntax="proto3")
    repeated, single = 3, 1

    def message(name, *fields):
        made = file.message_type.add(name=name)
        for number, field, kind, label in fields:
            entry = made.field.add(name=field, number=number, label=label)
            if kind in ("string", "bytes"):
                entry.type = {"string": 9, "bytes": 12}[kind]
            else:
                entry.type, entry.type_name = 11, ".parca." + kind

    message("Label", (1, "name", "string", single), (2, "value", "string", single))
    message("LabelSet", (1, "labels", "Label", repeated))
    message("RawSample", (1, "raw_profile", "bytes", single))
    message("RawProfileSeries", (1, "labels", "LabelSet", single), (2, "samples", "RawSample", repeated))
    message("WriteRawRequest", (1, "tenant", "string", single), (2, "series", "RawProfileSeries", repeated))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request = message_factory.GetMessageClass(pool.FindMessageTypeByName("parca.WriteRawRequest"))()
    request.ParseFromString(data[5:])
    [series] = request.series
    [sample] = series.samples
    with open(out, "wb") as profile:
        profile.write(sample.raw_profile)
    return {"labels": {label.name: label.value for label in series.labels.labels}}


if __name__ == "__main__":
    kind, file, *rest = sys.argv[1:]
    with open(file, "rb") as data:
        data = data.read()
    json.dump(otlp(data) if kind == "otlp" else parca(data, *rest), sys.stdout)
