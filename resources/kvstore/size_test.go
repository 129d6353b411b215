// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/health"
)

// withHealth has stores report to a tree that can be read.
func withHealth(r *harness) *health.Tree {
	tree := health.NewTree()
	r.scope.Health = tree.Reporter("test")
	return tree
}

func messages(tree *health.Tree) string {
	var all []string
	for _, s := range tree.Snapshot() {
		all = append(all, s.Message)
	}
	return strings.Join(all, "\n")
}

// KV-S8, KV-O9: a value that is too large for etcd is neither sent nor tried again; other keys and the synced marker are written, and so
// is the key when its value fits. What it had before stays.
func TestValuesBeyondTheSizeOfARequest(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	tree := withHealth(r)
	s := newServices(t, r)
	run(t, s.Run)
	s.Upsert("ns/had", []byte("old"))
	eventually(t, "the key is written", func() bool { return holds(t, etcd, servicesOfC1+"ns/had", "old") })
	huge := bytes.Repeat([]byte("x"), 3<<20)
	for i := range 7 {
		s.Upsert(fmt.Sprint("ns/huge", i), huge)
	}
	s.Upsert("ns/had", huge)
	s.Upsert("ns/a", []byte("a"))
	s.Synced()
	eventually(t, "the synced marker", func() bool { return read(t, etcd, syncedOfC1) != nil })
	if !holds(t, etcd, servicesOfC1+"ns/a", "a") || !holds(t, etcd, servicesOfC1+"ns/had", "old") || read(t, etcd, servicesOfC1+"ns/huge0") != nil {
		t.Error("the keys are not as they are to be")
	}
	eventually(t, "nothing waits", func() bool { return queueOf(r) == 0 })
	if n, tried := r.log.count("WARN", "a key is not written", "3145"), errorsOf(r); n != 8 || tried != 8 {
		t.Errorf("%d lines, %v attempts", n, tried)
	}
	if text := messages(tree); !strings.Contains(text, servicesOfC1+"ns/huge2 (3145") || !strings.Contains(text, "and 3 more") || strings.Contains(text, "huge6") {
		t.Errorf("health says %q", text)
	}
	s.syncer.enqueueAll() // as each period
	eventually(t, "nothing waits", func() bool { return queueOf(r) == 0 })
	if tried := errorsOf(r); tried != 8 {
		t.Errorf("it was tried again: %v attempts", tried)
	}

	fits := bytes.Repeat([]byte("x"), MaxValue)
	s.Upsert("ns/huge0", fits)
	for i := 1; i < 7; i++ {
		s.Delete(fmt.Sprint("ns/huge", i))
	}
	s.Upsert("ns/had", []byte("new"))
	eventually(t, "all is as desired", func() bool {
		return holds(t, etcd, servicesOfC1+"ns/huge0", string(fits)) && holds(t, etcd, servicesOfC1+"ns/had", "new") && queueOf(r) == 0
	})
	if text := messages(tree); strings.Contains(text, "bytes") {
		t.Errorf("health says %q", text)
	}
}

// KV-O9: what etcd refuses for its size, and what its client does, is told from other errors.
func TestRequestsThatEtcdRefusesForTheirSize(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	r := newHarness(t, to(e.Endpoints()[0])).ready(t)
	ctx := k8s.WithCause(t.Context(), &k8s.Cause{Rule: "test"})
	for _, size := range []int{1600 << 10, 4 << 20} {
		b := batch{writes: []Write{Put("cilium/test/small", []byte("x")), Put("cilium/test/large", bytes.Repeat([]byte("x"), size))}}
		err := r.do(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
			_, err := r.sendBatch(ctx, etcd, b, make([]LeaseID, 2))
			return err
		})
		var tooLarge *TooLargeError
		if !errors.As(err, &tooLarge) || tooLarge.Key != "cilium/test/large" || !tooLarge.Refused || !strings.Contains(err.Error(), "--max-request-bytes") {
			t.Errorf("%d bytes: %v", size, err)
		}
		if err := r.Write(ctx, b.writes...); !errors.As(err, &tooLarge) || tooLarge.Refused {
			t.Errorf("%d bytes are sent: %v", size, err)
		}
	}
	if err := r.Write(ctx, Put("cilium/test/fits", bytes.Repeat([]byte("x"), MaxValue))); err != nil {
		t.Error(err)
	}
}
