// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
)

// KV-K1 and KV-K2.
func TestKeys(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		Key(SyncedPrefix, "c1", ServicesPrefix):     "cilium/synced/c1/cilium/state/services/v1",
		Key(IdentityValuesPrefix, "k8s:a//b=..;"):   "cilium/state/identities/v1/value/k8s:a//b=..;", // nothing is cleaned
		Folder(NodesPrefix, "c1"):                   "cilium/state/nodes/v1/c1/",
		keyClass("cilium/state/services/v1/c1/a/b"): "services/v1",
		keyClass(HeartbeatKey):                      "cilium/.hear",
		keyClass("cilium/cluster-config/c1"):        "cilium/clust",
		keyClass("k"):                               "k",
		LeaseID(0x1234abcd).String():                "1234abcd",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// KV-Q4.
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

// Numbers 16 and 20 of the contract's kvstore.md; KV-Q3: so many quorum errors in a row are tolerated, two by default; one good check resets
// their number. A heartbeat that is too old is one.
func TestEvaluate(t *testing.T) {
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
		s = evaluate(s, c.endpoints, c.quorum, int(DefaultConfig.KVStoreMaxConsecutiveQuorumErrors))
		if (s.Err == nil) != c.healthy || s.QuorumErrors != c.errors || s.Quorum != (c.quorum == nil) {
			t.Errorf("check %d: %+v", i, s)
		}
	}
	if got, want := old.Error(), "2m5s since last heartbeat update has been received"; got != want || quorumErrorLabel(old) != "no event received" {
		t.Errorf("got %s (%s)", got, quorumErrorLabel(old))
	}
}

// KV-L5: when data counts as replaced.
func TestRestoreDetector(t *testing.T) {
	t.Parallel()
	l := newRestoreDetector()
	changes := 0
	l.onRestore(func() { changes++ })
	see := func(cluster uint64, revision, began int64, newest bool, want int) {
		t.Helper()
		now, before := l.dataRestored(), changes
		l.observe(&pb.ResponseHeader{ClusterId: cluster, Revision: revision}, began, newest)
		notified := false
		select {
		case <-now:
			notified = true
		default:
		}
		if changes != want || notified != (changes > before) {
			t.Errorf("%d changes, want %d; notified: %v", changes, want, notified)
		}
	}
	see(1, 10, 0, true, 0)
	see(1, 8, 10, false, 0) // a member that lags
	see(1, 9, 8, true, 0)   // an answer that took long
	see(1, 11, 10, true, 0)
	see(1, 5, 11, true, 1)  // restored from a backup
	see(1, 5, 11, true, 1)  // asked for before it was noticed
	see(2, 90, 5, false, 2) // recreated
	see(2, 90, 90, true, 2)
	l.observe(nil, 0, true)
}

// KV-L5, K5 of the contract's tenants.md: an etcd whose answers are of other data each time does not fill the log.
func TestReplacedAgainAndAgain(t *testing.T) {
	t.Parallel()
	r := newHarness(t, to("http://127.0.0.1:1"))
	for i := range 100 {
		r.conn.restores.observe(&pb.ResponseHeader{ClusterId: uint64(1 + i%2), Revision: 1}, 0, true)
	}
	if n := r.log.count("etcd data was restored or replaced"); n != 1 {
		t.Errorf("%d lines", n)
	}
	var lines restoreLines
	for _, at := range []struct {
		after   time.Duration
		skipped int
		due     bool
	}{{0, 0, true}, {time.Second, 0, false}, {2 * time.Second, 0, false}, {restorePause, 2, true}, {2 * restorePause, 0, true}} {
		if skipped, due := lines.next(time.Unix(1000, 0).Add(at.after)); skipped != at.skipped || due != at.due {
			t.Errorf("after %s: %d, %t", at.after, skipped, due)
		}
	}
}

// KV-C7: Services are resolved by the API, all other names by DNS.
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
func TestRunAllRaisesPanics(t *testing.T) {
	t.Parallel()
	defer func() {
		if v := recover(); v != "broken" {
			t.Errorf("recovered %v", v)
		}
	}()
	_ = runAll(t.Context(), func(ctx context.Context) { <-ctx.Done() }, func(context.Context) { panic("broken") })
	t.Error("the panic was swallowed")
}

// KV-O6: writers of a key take turns, whatever other keys they hold; an aborted wait
// leaves nothing behind.
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

// KV-C8.
func TestEnvironment(t *testing.T) {
	log := &logRecorder{}
	t.Setenv(checkTimeoutVariable, "3s")
	if got := newTiming(slog.New(log)).checkTimeout; got != 3*time.Second {
		t.Errorf("the limit is %s", got)
	}
	t.Setenv(checkTimeoutVariable, "soon")
	if got := newTiming(slog.New(log)).checkTimeout; got != 10*time.Second || log.count("WARN", checkTimeoutVariable, "soon") != 1 {
		t.Errorf("the limit is %s, the log %s", got, log)
	}
	zapLogger(slog.New(log)).Error("unasked")
	t.Setenv(clientDebugVariable, "warn")
	asked := zapLogger(slog.New(log)).With(zap.String("a", "b"))
	asked.Info("too little")
	asked.Warn("asked for", zap.Int("n", 7))
	if log.count("unasked") != 0 || log.count("too little") != 0 || log.count("WARN etcd client: asked for", "n=7") != 1 {
		t.Errorf("the log is %s", log)
	}
}

// KV-W4: delays double from 50 ms to the maximum, with jitter.
func TestBackoff(t *testing.T) {
	t.Parallel()
	b := newBackoff(2 * time.Second)
	for i, mean := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000, 2000} {
		mean *= time.Millisecond
		if d := b.Step(); d < mean/2 || d > mean*3/2 {
			t.Errorf("delay %d is %s, want about %s", i, d, mean)
		}
	}
}

// KV-C5: an error names the file; a client certificate is read at each handshake.
func TestTLSConfig(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	check(t, os.WriteFile(empty, nil, 0o600))
	for name, c := range map[string]struct {
		file fileConfig
		want string
	}{
		"CA without certificates": {fileConfig{TrustedCAFile: empty}, "has no certificate"},
		"no CA file":              {fileConfig{TrustedCAFile: empty + "x"}, "no such file"},
		"an empty certificate":    {fileConfig{CertFile: empty, KeyFile: empty}, "load the etcd client certificate"},
	} {
		_, err := c.file.tlsConfig()
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), empty) {
			t.Errorf("%s: %v, want %q and the name of the file in it", name, err, c.want)
		}
	}
	config := must(fileConfig{InsecureSkipTLSVerify: true}.tlsConfig())(t)
	if config.MinVersion != tls.VersionTLS12 || !config.InsecureSkipVerify {
		t.Errorf("got %+v", config)
	}
}
