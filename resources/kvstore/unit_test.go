// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
)

// Rules K1 and K2.
func TestKeys(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Key(SyncedPrefix, "c1", ServicesPrefix):   "cilium/synced/c1/cilium/state/services/v1",
		Key(IdentityValuesPrefix, "k8s:a//b=..;"): "cilium/state/identities/v1/value/k8s:a//b=..;", // nothing is cleaned
		Folder(NodesPrefix, "c1"):                 "cilium/state/nodes/v1/c1/",
		scope("cilium/state/services/v1/c1/a/b"):  "services/v1",
		scope(HeartbeatKey):                       "cilium/.hear",
		scope("cilium/cluster-config/c1"):         "cilium/clust",
		scope("k"):                                "k",
		LeaseID(0x1234abcd).String():              "1234abcd",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Rule Q4.
func TestStatusText(t *testing.T) {
	t.Parallel()
	s := Status{
		Endpoints: []EndpointStatus{{URL: "https://etcd-0:2379", Version: "3.5.4", Leader: true}},
		Leases:    1, LockLeases: 1, Quorum: true,
	}
	if got, want := s.String(), "etcd: 1/1 connected, leases=1, lock leases=1, has-quorum=true: https://etcd-0:2379 - 3.5.4 (Leader)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	s.Endpoints = append(s.Endpoints, EndpointStatus{URL: "https://etcd-1:2379", Err: errors.New("gone")})
	if got, want := s.String(), "etcd: 1/2 connected, leases=1, lock leases=1, has-quorum=true: https://etcd-0:2379 - 3.5.4 (Leader); https://etcd-1:2379 - gone"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Rule Q3: so many quorum errors in a row are tolerated; one good
// check resets their number.
func TestJudge(t *testing.T) {
	t.Parallel()
	up, down := []EndpointStatus{{URL: "a"}}, []EndpointStatus{{URL: "a", Err: errors.New("away")}}
	old := &heartbeatError{125 * time.Second}
	s := Status{}
	for i, c := range []struct {
		endpoints []EndpointStatus
		quorum    error
		healthy   bool
		errors    int
	}{
		{up, nil, true, 0}, {up, old, true, 1}, {up, old, true, 2}, {up, old, false, 3}, {up, old, false, 4},
		{up, nil, true, 0}, {down, nil, false, 0}, {up, old, true, 1}, {nil, nil, false, 0},
	} {
		s = judge(s, c.endpoints, c.quorum, 2)
		if (s.Err == nil) != c.healthy || s.QuorumErrors != c.errors || s.Quorum != (c.quorum == nil) {
			t.Errorf("check %d: %+v", i, s)
		}
	}
	if got, want := old.Error(), "2m5s since last heartbeat update has been received"; got != want || reason(old) != "no event received" {
		t.Errorf("got %s (%s)", got, reason(old))
	}
}

// Rule L5: when data counts as replaced.
func TestLineage(t *testing.T) {
	t.Parallel()
	l := newLineage()
	changes := 0
	l.then(func() { changes++ })
	see := func(cluster uint64, revision, began int64, newest bool, want int) {
		t.Helper()
		now, before := l.current(), changes
		l.saw(&pb.ResponseHeader{ClusterId: cluster, Revision: revision}, began, newest)
		told := false
		select {
		case <-now:
			told = true
		default:
		}
		if changes != want || told != (changes > before) {
			t.Errorf("%d changes, want %d; told: %v", changes, want, told)
		}
	}
	see(1, 10, 0, true, 0)
	see(1, 8, 10, false, 0) // a member that lags
	see(1, 9, 8, true, 0)   // an answer that took long
	see(1, 11, 10, true, 0)
	see(1, 5, 11, true, 1)  // restored from a backup
	see(1, 5, 11, true, 1)  // asked for before it was noticed
	see(2, 90, 5, false, 2) // made anew
	see(2, 90, 90, true, 2)
	l.saw(nil, 0, true)
}

// Rule C7: the addresses of Services are asked for; everything else is DNS's.
func TestServiceAddresses(t *testing.T) {
	t.Parallel()
	s := serviceAddresses{fakeServices{"kube-system/etcd": "10.1.2.3", "kube-system/headless": "None"}}
	for address, want := range map[string]string{
		"etcd.kube-system.svc:2379":               "10.1.2.3:2379",
		"etcd.kube-system.svc.cluster.local:2379": "10.1.2.3:2379",
		"headless.kube-system.svc:2379":           "headless.kube-system.svc:2379",
		"missing.kube-system.svc:2379":            "missing.kube-system.svc:2379",
		"etcd.kube-system:2379":                   "etcd.kube-system:2379",
		"0.etcd.kube-system.svc:2379":             "0.etcd.kube-system.svc:2379",
		"10.0.0.1:2379":                           "10.0.0.1:2379",
		"[fd00::1]:2379":                          "[fd00::1]:2379",
		"no port":                                 "no port",
	} {
		if got := s.resolve(t.Context(), address); got != want {
			t.Errorf("%s is %s, want %s", address, got, want)
		}
	}
	if got := (serviceAddresses{}).resolve(t.Context(), "etcd.kube-system.svc:1"); got != "etcd.kube-system.svc:1" {
		t.Errorf("without Kubernetes: %s", got)
	}
}

// fakeServices are the cluster IPs of Services by namespace and name.
type fakeServices map[string]string

func (f fakeServices) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	ip, ok := f[ref.Namespace+"/"+ref.Name]
	if !ok || ref.Resource.Resource != "services" {
		return nil, errors.New("not found")
	}
	return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"clusterIP": ip}}}, nil
}

// A panic of a consumer reaches the job that runs a store, and ends the rest.
func TestTogetherPassesPanicsOn(t *testing.T) {
	t.Parallel()
	defer func() {
		if v := recover(); v != "broken" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = together(t.Context(), func(ctx context.Context) { <-ctx.Done() }, func(context.Context) { panic("broken") })
	t.Error("the panic was swallowed")
}

// Rule O6: writers of a key take turns, whichever other keys they hold; who
// gives up leaves nothing behind.
func TestKeyLocks(t *testing.T) {
	t.Parallel()
	l := keyLocks{locks: map[string]*keyLock{}}
	var wg sync.WaitGroup
	holders := map[string]int{}
	var mu sync.Mutex
	note := func(keys []string, by int) {
		mu.Lock()
		defer mu.Unlock()
		for _, k := range keys {
			if holders[k] += by; holders[k] > 1 {
				t.Errorf("%s is held twice", k)
			}
		}
	}
	for i := range 200 {
		wg.Go(func() {
			keys := []string{string(rune('a' + i%3)), string(rune('a' + (i+1)%3))}
			unlock, err := l.lock(t.Context(), keys...)
			if err != nil {
				t.Error(err)
				return
			}
			note(keys, 1)
			note(keys, -1)
			unlock()
		})
	}
	wg.Wait()
	unlock := must(l.lock(t.Context(), "b", "b"))(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.lock(canceled, "a", "b"); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that is held: %v", err)
	}
	unlock()
	if len(l.locks) != 0 {
		t.Errorf("%d locks are left", len(l.locks))
	}
}

// Rule C8.
func TestEnvironment(t *testing.T) {
	log := &logBook{}
	t.Setenv(checkTimeoutVariable, "3s")
	if got := newTiming(slog.New(log)).checkTimeout; got != 3*time.Second {
		t.Errorf("the limit is %s", got)
	}
	t.Setenv(checkTimeoutVariable, "soon")
	if got := newTiming(slog.New(log)).checkTimeout; got != 10*time.Second || log.count("WARN", checkTimeoutVariable, "soon") != 1 {
		t.Errorf("the limit is %s, the log %s", got, log)
	}
	quietLogger(slog.New(log)).Error("unasked")
	t.Setenv(clientDebug, "warn")
	asked := quietLogger(slog.New(log)).With(zap.String("a", "b"))
	asked.Info("too little")
	asked.Warn("asked for", zap.Int("n", 7))
	if log.count("unasked") != 0 || log.count("too little") != 0 || log.count("WARN etcd client: asked for", "n=7") != 1 {
		t.Errorf("the log is %s", log)
	}
}
