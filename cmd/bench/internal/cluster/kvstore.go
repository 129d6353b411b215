// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/clustertest/control"
)

// store is an etcd of its own, and a client.
type store struct {
	dir    string
	info   control.Info
	cmd    *exec.Cmd
	client *clientv3.Client
}

func startStore(ctx context.Context, members int) (*store, error) {
	program, err := clustertest.Program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "skep-bench-etcd")
	if err != nil {
		return nil, err
	}
	s := &store{dir: dir, cmd: exec.CommandContext(ctx, program, "etcd", "--dir", dir, "--members", strconv.Itoa(members))}
	if err := awaitReady(s.cmd); err != nil {
		return nil, err
	}
	if s.info, err = control.ReadInfo(dir); err == nil {
		s.client, err = clientv3.New(clientv3.Config{Endpoints: s.info.Etcd.Endpoints(), DialTimeout: time.Minute, Logger: zap.NewNop()})
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *store) stop() {
	if s.client != nil {
		_ = s.client.Close()
	}
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// clientFile is a configuration of the operator's client.
func (s *store) clientFile() (string, error) {
	file := filepath.Join(s.dir, "client.yaml")
	return file, os.WriteFile(file, []byte("endpoints: ["+strings.Join(s.info.Etcd.Endpoints(), ", ")+"]\n"), 0o600)
}

// kill ends all members at once, and startAgain starts them.
func (s *store) kill(ctx context.Context) error {
	client := control.NewClient(s.info)
	defer client.Close()
	for _, m := range s.info.Etcd.Members {
		if err := client.KillMember(ctx, m.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) startAgain(ctx context.Context) error {
	client := control.NewClient(s.info)
	defer client.Close()
	for _, m := range s.info.Etcd.Members {
		if err := client.StartMember(ctx, m.Name); err != nil {
			return err
		}
	}
	return nil
}

// traffic is what the members have served.
type traffic struct{ reads, writes, received float64 }

func (t traffic) since(before traffic) traffic {
	return traffic{t.reads - before.reads, t.writes - before.writes, t.received - before.received}
}

// traffic reads the members' own metrics. Requests of the bench's client are among them.
func (s *store) traffic(ctx context.Context) (t traffic, err error) {
	for _, endpoint := range s.info.Etcd.Endpoints() {
		text, err := get(ctx, http.DefaultClient, endpoint+"/metrics")
		if err != nil {
			return t, err
		}
		lines := bufio.NewScanner(strings.NewReader(string(text)))
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			n, _ := strconv.ParseFloat(value, 64)
			switch {
			case strings.HasPrefix(name, "etcd_network_client_grpc_received_bytes_total"):
				t.received += n
			case !strings.HasPrefix(name, "grpc_server_handled_total{"):
			case strings.Contains(name, `grpc_method="Range"`):
				t.reads += n
			case strings.Contains(name, `grpc_method="Put"`), strings.Contains(name, `grpc_method="DeleteRange"`), strings.Contains(name, `grpc_method="Txn"`):
				t.writes += n
			}
		}
	}
	return t, nil
}

// tracker knows the keys under a prefix, by a watch.
type tracker struct {
	mu            sync.Mutex
	values        map[string]string
	gone          map[string]bool // deleted at least once
	puts, deletes int
	first, last   time.Time // changes
	// onEvent is called for each event, with mu held.
	onEvent func(deleted bool, key, value string)
}

// track begins with the keys there are. The watch survives etcd.
func (s *store) track(ctx context.Context, prefix string) (*tracker, error) {
	t := &tracker{values: map[string]string{}, gone: map[string]bool{}}
	resp, err := s.client.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		t.values[string(kv.Key)] = string(kv.Value)
	}
	events := s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	go func() {
		for resp := range events {
			now := time.Now()
			t.mu.Lock()
			for _, e := range resp.Events {
				t.observe(e, now)
			}
			t.mu.Unlock()
		}
	}()
	return t, nil
}

func (t *tracker) observe(e *clientv3.Event, now time.Time) {
	if t.onEvent != nil {
		t.onEvent(e.Type == clientv3.EventTypeDelete, string(e.Kv.Key), string(e.Kv.Value))
	}
	if t.first.IsZero() {
		t.first = now
	}
	t.last = now
	key := string(e.Kv.Key)
	if e.Type == clientv3.EventTypeDelete {
		t.deletes++
		t.gone[key] = true
		delete(t.values, key)
	} else {
		t.puts++
		t.values[key] = string(e.Kv.Value)
	}
}

// reset starts the counts and times anew.
func (t *tracker) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.puts, t.deletes, t.first, t.last = 0, 0, time.Time{}, time.Time{}
	clear(t.gone)
}

func (t *tracker) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.puts + t.deletes
}

// deleted counts the keys that were deleted, also if they are back.
func (t *tracker) deleted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.gone)
}

// span is the time of the first change and of the last one.
func (t *tracker) span() (first, last time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.first, t.last
}

// valuesOf returns the values of the keys of a map, or of all keys for nil.
func (t *tracker) valuesOf(keys map[string]string) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if keys == nil {
		keys = t.values
	}
	values := make(map[string]string, len(keys))
	for key := range keys {
		values[key] = t.values[key]
	}
	return values
}

// holds waits until something holds of the keys.
func (t *tracker) holds(ctx context.Context, what func(*tracker) bool) error {
	return until(ctx, func() (bool, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return what(t), nil
	})
}

// put writes keys with the bare client, by so many workers, and returns how long it took.
func (s *store) put(ctx context.Context, values map[string]string) (time.Duration, error) {
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	lease, err := s.client.Grant(ctx, 900)
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", err)
	}
	began := time.Now()
	err = paced(ctx, 0, len(keys), func(ctx context.Context, i int) error {
		_, err := s.client.Put(ctx, "bench/"+keys[i], values[keys[i]], clientv3.WithLease(lease.ID))
		return err
	})
	return time.Since(began), err
}
