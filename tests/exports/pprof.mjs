// pprof.mjs FILE: reads a file with the npm package pprof-format and prints it as JSON. Ids and numbers of strings are replaced
// by what they refer to; numbers are numbers of JavaScript.
import fs from "node:fs";
import zlib from "node:zlib";
import { Profile } from "pprof-format";

const profile = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[2])));
const text = (number) => profile.stringTable.strings[Number(number)];
const byId = (list) => new Map(list.map((entry) => [Number(entry.id), entry]));
const [functions, locations, mappings] = [profile.function, profile.location, profile.mapping].map(byId);
const values = profile.sampleType.map((type) => text(type.type));

function location(id) {
  const { address, mappingId, line } = locations.get(Number(id));
  const mapping = mappings.get(Number(mappingId));
  return {
    address: Number(address),
    module: mapping ? text(mapping.filename) : null,
    lines: line.map((line) => {
      const called = functions.get(Number(line.functionId));
      return { function: text(called.name), system: text(called.systemName), file: text(called.filename), line: Number(line.line) };
    }),
  };
}

const samples = profile.sample.map((sample) => ({
  values: Object.fromEntries(sample.value.map((value, at) => [values[at], Number(value)])),
  labels: Object.fromEntries(sample.label.map((label) => [text(label.key), text(label.str) || Number(label.num)])),
  stack: sample.locationId.map(location),
}));
console.log(
  JSON.stringify({
    values: profile.sampleType.map((type) => [text(type.type), text(type.unit)]),
    period: [text(profile.periodType.type), text(profile.periodType.unit), Number(profile.period)],
    shown: text(profile.defaultSampleType),
    comments: profile.comment.map(text),
    time: String(profile.timeNanos),
    duration: Number(profile.durationNanos),
    mappings: profile.mapping.map((mapping) => ({
      path: text(mapping.filename),
      build_id: text(mapping.buildId),
      start: Number(mapping.memoryStart),
      limit: Number(mapping.memoryLimit),
    })),
    samples,
  }),
);
