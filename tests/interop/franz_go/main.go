// franz-go: version, produce, read, member, since; tests/interop/clients.py says what each is told and prints. transactions.go has the rest.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type record struct {
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp int64             `json:"timestamp"`
	Key       string            `json:"key"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
	check(err)
	return made
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	check(err)
	return value
}

func show(seen *kgo.Record) {
	headers := map[string]string{}
	for _, header := range seen.Headers {
		headers[header.Key] = string(header.Value)
	}
	line, err := json.Marshal(record{seen.Partition, seen.Offset, seen.Timestamp.UnixMilli(), string(seen.Key), string(seen.Value), headers})
	check(err)
	fmt.Println(string(line))
}

func produce(bootstrap, topic, codec string) {
	writer := client(bootstrap, kgo.ProducerBatchCompression(codecs[codec]), kgo.ProducerLinger(50*time.Millisecond))
	defer writer.Close()
	var records []*kgo.Record
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var wanted record
		check(json.Unmarshal(lines.Bytes(), &wanted))
		made := &kgo.Record{Topic: topic, Key: []byte(wanted.Key), Value: []byte(wanted.Value)}
		for name, value := range wanted.Headers {
			made.Headers = append(made.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		records = append(records, made)
	}
	check(lines.Err())
	check(writer.ProduceSync(context.Background(), records...).FirstErr())
}

func group(bootstrap, name string, topics ...string) *kgo.Client {
	session := 3 * time.Second
	if text := os.Getenv("BUSWAY_INTEROP_SESSION_MS"); text != "" {
		session = time.Duration(number(text)) * time.Millisecond
	}
	return client(bootstrap, kgo.ConsumerGroup(name), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session), kgo.HeartbeatInterval(min(session/10, 3*time.Second)))
}

func read(bootstrap, name, count string, topics ...string) {
	reader := group(bootstrap, name, topics...)
	for left := int(number(count)); left > 0; {
		found := reader.PollRecords(context.Background(), left)
		check(found.Err())
		found.EachRecord(show)
		left -= found.NumRecords()
	}
	check(reader.CommitUncommittedOffsets(context.Background()))
	check(reader.LeaveGroupContext(context.Background()))
	reader.Close()
}

func member(bootstrap, topic, name string) {
	reader := group(bootstrap, name, topic)
	for {
		found := reader.PollFetches(context.Background())
		check(found.Err())
		found.EachRecord(show)
		// A commit that a rebalance refuses is no loss: another member reads the records again.
		_ = reader.CommitUncommittedOffsets(context.Background())
	}
}

func since(bootstrap, topic, timestamp string) {
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AfterMilli(number(timestamp))}}
	reader := client(bootstrap, kgo.ConsumePartitions(from))
	defer reader.Close()
	found := reader.PollRecords(context.Background(), 1)
	check(found.Err())
	found.EachRecord(show)
}

func version() {
	built, _ := debug.ReadBuildInfo()
	for _, module := range built.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			fmt.Println(module.Version)
		}
	}
}

func main() {
	rest := os.Args[2:]
	switch os.Args[1] {
	case "produce":
		produce(rest[0], rest[1], rest[2])
	case "read":
		read(rest[0], rest[1], rest[2], rest[3:]...)
	case "member":
		member(rest[0], rest[1], rest[2])
	case "since":
		since(rest[0], rest[1], rest[2])
	case "pass_on":
		passOn(rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6], rest[7])
	case "dump":
		dump(rest[0], rest[1], rest[2])
	case "version":
		version()
	}
}
