// franz-go: pass_on and dump; tests/interop/judges/loops.py says what each is told and prints.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const clockMonotonic = 1

// now is the time that all processes of a machine share.
func now() int64 {
	var at syscall.Timespec
	_, _, problem := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0)
	if problem != 0 {
		check(problem)
	}
	return at.Nano()
}

var telling sync.Mutex

// tell prints one line of the history.
func tell(process string, fields map[string]any) {
	fields["process"] = process
	fields["at"] = now()
	line, err := json.Marshal(fields)
	check(err)
	telling.Lock()
	defer telling.Unlock()
	_, err = os.Stdout.Write(append(line, '\n'))
	check(err)
}

func places(of map[string][]int32) []string {
	found := []string{}
	for topic, partitions := range of {
		for _, partition := range partitions {
			found = append(found, fmt.Sprintf("%s-%d", topic, partition))
		}
	}
	return found
}

// session is a member of the group whose transactions carry what it passes on.
func session(bootstrap, source, name, id, protocol, process string) *kgo.GroupTransactSession {
	given := func(_ context.Context, of *kgo.Client, fresh map[string][]int32) {
		member, generation := of.GroupMetadata()
		// Not all that it owns: the session keeps a second revocation within a transaction to itself.
		tell(process, map[string]any{"f": "ownership", "group": name, "member": member, "generation": generation,
			"owned": places(fresh), "new": places(fresh)})
	}
	taken := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		tell(process, map[string]any{"f": "revoked", "group": name, "partitions": places(gone)})
	}
	// With the cooperative balancer a group would stay a classic one, without a word.
	balanced := []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}
	if protocol == "consumer" {
		balanced = []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}
	}
	made, err := kgo.NewGroupTransactSession(append(balanced,
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(5*time.Second),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(3*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.OnPartitionsAssigned(given),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	)...)
	check(err)
	return made
}

// passOn reads, writes what it has read to the target, each record to the partition of the same number, and commits, until it is told to end.
func passOn(bootstrap, source, target, name, id, process, size, protocol string) {
	ending, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	running := session(bootstrap, source, name, id, protocol, process)
	defer running.Close()
	for attempt := 0; ending.Err() == nil; {
		found := running.PollRecords(ending, int(number(size)))
		if found.NumRecords() == 0 {
			continue
		}
		attempt++
		values, offsets := [][3]string{}, map[string]int64{}
		records := []*kgo.Record{}
		found.EachRecord(func(each *kgo.Record) {
			place := fmt.Sprintf("%s-%d", source, each.Partition)
			value := fmt.Sprintf("%s~%s.%d", each.Value, process, attempt)
			values = append(values, [3]string{fmt.Sprintf("%s-%d", target, each.Partition), value,
				fmt.Sprintf("%s@%d", place, each.Offset)})
			offsets[place] = each.Offset + 1
			records = append(records, &kgo.Record{Topic: target, Partition: each.Partition, Key: each.Key, Value: []byte(value)})
		})
		event := func(what string, problem error) {
			fields := map[string]any{"event": what, "id": attempt}
			if problem != nil {
				fields["problem"] = problem.Error()
			}
			tell(process, fields)
		}
		tell(process, map[string]any{"f": "transaction", "event": "invoke", "id": attempt, "transactional_id": id, "values": values,
			"group": name, "offsets": offsets})
		check(running.Begin())
		for _, each := range records {
			running.Produce(context.Background(), each, func(_ *kgo.Record, err error) {
				if err != nil && !errors.Is(err, kgo.ErrAborting) {
					fmt.Fprintln(os.Stderr, process, "produce:", err)
				}
			})
		}
		event("asked", nil)
		committed, err := running.End(context.Background(), kgo.TryCommit)
		switch {
		case err != nil:
			// Whoever is fenced is over, and the rest is nobody's business any more; a new process goes on.
			event("info", err)
			fmt.Fprintln(os.Stderr, process, "end:", err)
			os.Exit(3)
		case committed:
			event("ok", nil)
		default:
			event("fail", nil)
		}
	}
}

// dump prints the committed records of a topic's partitions, all there are when it begins, and its ends.
func dump(bootstrap, topic, ends string) {
	var upTo map[int32]int64
	check(json.NewDecoder(strings.NewReader(ends)).Decode(&upTo))
	from := map[int32]kgo.Offset{}
	for partition, end := range upTo {
		if end > 0 {
			from[partition] = kgo.NewOffset().AtStart()
		}
	}
	// Control records have offsets, too, and may be the last.
	reader := client(bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer reader.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	lines := json.NewEncoder(out)
	for len(from) > 0 {
		found := reader.PollFetches(context.Background())
		check(found.Err())
		found.EachRecord(func(each *kgo.Record) {
			if !each.Attrs.IsControl() {
				check(lines.Encode([]any{each.Partition, each.Offset, string(each.Value)}))
			}
			if each.Offset >= upTo[each.Partition]-1 {
				delete(from, each.Partition)
			}
		})
	}
}
