// franz-go's producers, one idempotent and one in transactions, until standard input ends; tests/chaos/foreign_clients.py has the lines.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	inFlight      = 8
	aborted       = 0.2
	plain         = "franz-go"
	transactional = "franz-go-transactions"
)

var (
	over     atomic.Bool
	printing sync.Mutex
)

func tell(outcome, writer, rest string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(outcome, writer, rest)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(servers string, more ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(more, kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))...)
	check(err)
	return made
}

func record(topic string, partitions, number int, writer string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: []byte(writer + ":" + strconv.Itoa(number))}
}

func write(servers, topic string, partitions int, patience time.Duration) {
	producer := client(servers, kgo.RecordDeliveryTimeout(60*time.Second*patience))
	defer producer.Close()
	free := make(chan struct{}, inFlight)
	for number := 0; !over.Load(); number++ {
		free <- struct{}{}
		next := record(topic, partitions, number, plain)
		tell("tried", plain, string(next.Value))
		producer.Produce(context.Background(), next, func(sent *kgo.Record, err error) {
			if err == nil {
				tell("acknowledged", plain, string(sent.Value))
			} else {
				tell("failed", plain, string(sent.Value))
			}
			<-free
		})
	}
	check(producer.Flush(context.Background()))
}

func writeInTransactions(ending context.Context, servers, topic string, partitions int, drawn *rand.Rand) {
	number := 0
	for !over.Load() {
		producer := client(servers, kgo.TransactionalID(transactional), kgo.TransactionTimeout(20*time.Second))
		for usable := true; usable && !over.Load(); {
			var records []*kgo.Record
			var values []string
			for count := 2 + drawn.Intn(7); count > 0; count-- {
				records = append(records, record(topic, partitions, number, transactional))
				values = append(values, string(records[len(records)-1].Value))
				number++
			}
			joined := strings.Join(values, " ")
			tell("tried", transactional, joined)
			call, err := transaction(ending, producer, records, drawn.Float64() < aborted)
			switch {
			case err != nil:
				tell("unknown", transactional, joined+"\t"+call+", "+strings.ReplaceAll(err.Error(), "\n", " "))
				usable = false
			case call == "commit":
				tell("committed", transactional, joined)
			default:
				tell("aborted", transactional, joined)
			}
		}
		producer.Close()
	}
}

// transaction returns the call that ended it; after an error its outcome is unknown and the client is not used again.
func transaction(ending context.Context, producer *kgo.Client, records []*kgo.Record, abort bool) (string, error) {
	if err := producer.BeginTransaction(); err != nil {
		return "begin", err
	}
	var failed atomic.Bool
	for _, each := range records {
		producer.Produce(ending, each, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(true)
			}
		})
	}
	if err := producer.Flush(ending); err != nil {
		return "flush", err
	}
	if !abort && !failed.Load() {
		err := producer.EndTransaction(ending, kgo.TryCommit)
		if err == nil || !(errors.Is(err, kerr.OperationNotAttempted) || errors.Is(err, kerr.TransactionAbortable)) {
			return "commit", err
		}
	}
	return "abort", producer.EndTransaction(ending, kgo.TryAbort)
}

func main() {
	servers, topic, ofTransactions := os.Args[1], os.Args[2], os.Args[3]
	partitions, err := strconv.Atoi(os.Args[4])
	check(err)
	patience, err := strconv.Atoi(os.Args[5])
	check(err)
	seed, err := strconv.ParseInt(os.Args[6], 10, 64)
	check(err)
	ending, end := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	writers.Add(2)
	go func() {
		defer writers.Done()
		write(servers, topic, partitions, time.Duration(patience))
	}()
	go func() {
		defer writers.Done()
		writeInTransactions(ending, servers, ofTransactions, partitions, rand.New(rand.NewSource(seed)))
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
	over.Store(true)
	time.AfterFunc(30*time.Second*time.Duration(patience), end)
	writers.Wait()
}
