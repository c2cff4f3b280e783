// Drives a registry with @confluentinc/schemaregistry: node round.js URL. Prints what it met as one JSON object.
//
// What lives here: one walk through the client, with its defaults. What does not: judging it (test_confluent_node.py).

const { SchemaRegistryClient, AvroSerializer, AvroDeserializer, SerdeType } = require("@confluentinc/schemaregistry");

const RATING = {
  type: "record",
  name: "Rating",
  fields: [
    { name: "user", type: "int" },
    { name: "stars", type: "double" },
  ],
};
const WIDER = { ...RATING, fields: [...RATING.fields, { name: "title", type: ["null", "string"], default: null }] };
const BROKEN = { ...RATING, fields: [...RATING.fields, { name: "title", type: "string" }] };

const info = (schema) => ({ schemaType: "AVRO", schema: JSON.stringify(schema) });

async function codeOf(call) {
  try {
    await call();
    return null;
  } catch (refusal) {
    return [refusal.status, refusal.errorCode];
  }
}

async function main(url) {
  const client = new SchemaRegistryClient({ baseURLs: [url] });
  const found = {};
  found.register = await client.register("ratings-value", info(RATING));
  found.again = await client.register("ratings-value", info(RATING), true);
  found.incompatible = await codeOf(() => client.register("ratings-value", info(BROKEN)));
  found.nonsense = await codeOf(() => client.register("ratings-value", { schemaType: "AVRO", schema: "{}" }));
  found.compatible = [
    await client.testSubjectCompatibility("ratings-value", info(WIDER)),
    await client.testSubjectCompatibility("ratings-value", info(BROKEN)),
  ];

  const serializer = new AvroSerializer(client, SerdeType.VALUE, { autoRegisterSchemas: false, useLatestVersion: true });
  const record = { user: 7, stars: 4.5 };
  const bytes = await serializer.serialize("ratings", record);
  found.prefix = [...bytes.subarray(0, 5)];
  found.record = await new AvroDeserializer(client, SerdeType.VALUE, {}).deserialize("ratings", bytes);

  found.second = await client.register("ratings-value", info(WIDER));
  const fresh = new SchemaRegistryClient({ baseURLs: [url] }); // the first one keeps what was the latest for a while
  const latest = await fresh.getLatestSchemaMetadata("ratings-value");
  found.latest = [latest.id, latest.version, JSON.parse(latest.schema).fields.length];
  const reader = new AvroDeserializer(fresh, SerdeType.VALUE, { useLatestVersion: true });
  found.evolved = await reader.deserialize("ratings", bytes);

  found.versions = await client.getAllVersions("ratings-value");
  found.subjects = await client.getAllSubjects();
  found.id = await client.getId("ratings-value", info(RATING));
  found.version = await client.getVersion("ratings-value", info(WIDER));
  found.level = await client.updateCompatibility("ratings-value", "FULL");
  found.readLevel = await client.getCompatibility("ratings-value");
  found.noLevel = await codeOf(() => client.getCompatibility("other"));
  found.name = await client.register("a/b:c 値", info(RATING));
  found.deletedVersion = await client.deleteSubjectVersion("ratings-value", 1);
  found.deleted = await client.deleteSubject("ratings-value");
  found.gone = await client.deleteSubject("ratings-value", true);
  found.left = await client.getAllSubjects();
  console.log(JSON.stringify(found));
}

main(process.argv[2]).then(
  () => process.exit(0),
  (problem) => {
    console.error(problem);
    process.exit(1);
  },
);
