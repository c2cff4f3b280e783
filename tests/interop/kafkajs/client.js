// kafkajs: version, produce, read, member, since; tests/interop/clients.py says what each is told and prints.
'use strict';
const readline = require('readline');
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs');
const SnappyCodec = require('kafkajs-snappy');
const LZ4Codec = require('kafkajs-lz4');
const zstd = require('@bokuweb/zstd-wasm');

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = new LZ4Codec().codec;
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const sessionTimeout = Number(process.env.BUSWAY_INTEROP_SESSION_MS || 3000);
const heartbeatInterval = Math.min(sessionTimeout / 10, 3000);

const connect = (bootstrap) => new Kafka({ clientId: 'interop', brokers: bootstrap.split(','), logLevel: logLevel.ERROR });

function show(partition, message) {
  const headers = Object.fromEntries(Object.entries(message.headers || {}).map(([name, value]) => [name, value.toString()]));
  const seen = {
    partition,
    offset: Number(message.offset),
    timestamp: Number(message.timestamp),
    key: message.key.toString(),
    value: message.value.toString(),
    headers,
  };
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}

async function produce(bootstrap, topic, codec) {
  const messages = [];
  for await (const line of readline.createInterface({ input: process.stdin })) messages.push(JSON.parse(line));
  const producer = connect(bootstrap).producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic, messages, compression: CODECS[codec], acks: -1 });
  await producer.disconnect();
}

async function groupMember(bootstrap, groupId, topics) {
  const consumer = connect(bootstrap).consumer({ groupId, sessionTimeout, heartbeatInterval, rebalanceTimeout: 3000, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  return consumer;
}

async function read(bootstrap, groupId, count, ...topics) {
  const consumer = await groupMember(bootstrap, groupId, topics);
  let left = Number(count);
  await new Promise((done, failed) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => failed(payload.error));
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          if (left <= 0) return;
          show(partition, message);
          left -= 1;
          if (left === 0) done();
        },
      })
      .catch(failed);
  });
  await consumer.stop();
  await consumer.disconnect();
}

async function member(bootstrap, topic, groupId) {
  const consumer = await groupMember(bootstrap, groupId, [topic]);
  await consumer.run({ autoCommitInterval: 200, eachMessage: async ({ partition, message }) => show(partition, message) });
  await new Promise(() => {});
}

async function since(bootstrap, topic, timestamp) {
  const admin = connect(bootstrap).admin();
  await admin.connect();
  const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp));
  await admin.disconnect();
  const consumer = await groupMember(bootstrap, `since-${process.pid}`, [topic]);
  await new Promise((done, failed) => {
    let seen = false;
    consumer
      .run({
        eachMessage: async ({ partition, message }) => {
          if (seen || Number(message.offset) < Number(offset)) return;
          seen = true;
          show(partition, message);
          done();
        },
      })
      .catch(failed);
    consumer.seek({ topic, partition: 0, offset });
  });
  await consumer.disconnect();
}

async function version() {
  process.stdout.write(`${require('kafkajs/package.json').version}\n`);
}

async function main() {
  await zstd.init();
  const [action, ...rest] = process.argv.slice(2);
  await { produce, read, member, since, version }[action](...rest);
}

main().catch((problem) => {
  process.stderr.write(`${problem.stack}\n`);
  process.exit(1);
});
