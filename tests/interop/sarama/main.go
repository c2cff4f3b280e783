// sarama: version, member; tests/interop/clients.py says what each is told and prints.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type record struct {
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp int64             `json:"timestamp"`
	Key       string            `json:"key"`
	Value     string            `json:"value"`
	Headers   map[string]string `json:"headers"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printer prints every record of every partition that it is assigned.
type printer struct{}

func (printer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (printer) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (printer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for seen := range claim.Messages() {
		headers := map[string]string{}
		for _, header := range seen.Headers {
			headers[string(header.Key)] = string(header.Value)
		}
		line, err := json.Marshal(record{seen.Partition, seen.Offset, seen.Timestamp.UnixMilli(), string(seen.Key), string(seen.Value), headers})
		check(err)
		fmt.Println(string(line))
		session.MarkMessage(seen, "")
	}
	return nil
}

func member(bootstrap, topic, group string) {
	config := sarama.NewConfig()
	config.Version = sarama.V3_0_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Heartbeat.Interval = 3 * time.Second
	if text := os.Getenv("BUSWAY_INTEROP_SESSION_MS"); text != "" {
		session, err := strconv.Atoi(text)
		check(err)
		config.Consumer.Group.Session.Timeout = time.Duration(session) * time.Millisecond
	}
	consumer, err := sarama.NewConsumerGroup(strings.Split(bootstrap, ","), group, config)
	check(err)
	for {
		if err := consumer.Consume(context.Background(), []string{topic}, printer{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func main() {
	switch arguments := os.Args[2:]; os.Args[1] {
	case "version":
		build, _ := debug.ReadBuildInfo()
		for _, module := range build.Deps {
			if module.Path == "github.com/IBM/sarama" {
				fmt.Println(module.Version)
			}
		}
	case "member":
		member(arguments[0], arguments[1], arguments[2])
	}
}
