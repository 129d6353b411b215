// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// An operator whose etcd has three members, of which some are killed and paused all
// the time: when all are back, its keys are as they should be within seconds, on
// leases that live, and its own health says that all is well; nodes get their CIDRs
// meanwhile. SKEP_SEED repeats a run. The stores themselves go through the same, and
// through longer outages, in resources/kvstore.
func TestEtcdMembersOfAnOperatorComeAndGo(t *testing.T) {
	length := 20 * time.Second
	if soak() {
		length = 5 * time.Minute
	}
	seed := seed(t)
	r := rand.New(rand.NewPCG(seed, 5))
	w, e := newWorld(t), kvstoretest.Start(t, 3)
	trouble := clustertest.NewTrouble(t, e.Etcd, seed)
	file := filepath.Join(t.TempDir(), "etcd.config")
	if err := os.WriteFile(file, []byte("endpoints: ["+strings.Join(e.Endpoints(), ", ")+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	record := e.Follow("cilium/cluster-config/", 1)
	o, _ := w.run("member", nil,
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=1000,etcd.config="+file, "--cluster-name=c1", "--cluster-id=1",
		"--kvstore-heartbeat-interval=1s", "--kvstore-lease-ttl=25s")
	o.leads()
	o.until("the heartbeat", func() bool { return e.Get(heartbeatKey) != nil })

	for began, round := time.Now(), 0; time.Since(began) < length; round++ {
		for range 5 + r.IntN(10) {
			trouble.Act(t)
			time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond) // a pace, not a wait
		}
		w.served(fmt.Sprint("node-", round)) // etcd is no matter of theirs
		trouble.Heal(t)
		since := servedRevision(t, e)
		began := time.Now()
		var last error
		for {
			err := etcdIsRight(o, e, since)
			took := time.Since(began)
			if err == nil {
				t.Logf("all is well %s after the members are back; the last that was not: %v", took.Round(time.Millisecond), last)
				break
			}
			if took > slowness*calmsWithin || !o.running() {
				t.Fatalf("%s after the members are back: %v", took, err)
			}
			last = err
			time.Sleep(20 * time.Millisecond)
		}
	}
	t.Logf("members: %s", trouble)
	for _, event := range record.Events() {
		if event.Type == clientv3.EventTypePut && event.Kv.Lease == 0 {
			t.Errorf("%s was written without a lease at %d", event.Kv.Key, event.Kv.ModRevision)
		}
	}
	if n := o.log.Count("panicked"); n > 0 {
		t.Errorf("the operator has panicked: %d lines of the log say so", n)
	}
	if code := o.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// servedRevision waits until etcd serves, and is how far it is then.
func servedRevision(t *testing.T, e *kvstoretest.Etcd) (revision int64) {
	t.Helper()
	eventually(t, "etcd serves", func() bool {
		resp, err := e.Client.Get(t.Context(), "no key")
		if err == nil {
			revision = resp.Header.Revision
		}
		return err == nil
	})
	return revision
}

// etcdIsRight says what is not as it should be: the heart has beaten since a revision,
// the cluster's configuration is there, both on leases that live, and health is well.
func etcdIsRight(o *operator, e *kvstoretest.Etcd, since int64) error {
	beat, config := e.Get(heartbeatKey), e.Get(configKey)
	switch {
	case beat == nil || beat.ModRevision <= since:
		return fmt.Errorf("the heart has not beaten since revision %d", since)
	case config == nil || !strings.HasPrefix(string(config.Value), `{"id":1,"capabilities":`):
		return fmt.Errorf("the configuration is %v", config)
	}
	for _, kv := range []int64{beat.Lease, config.Lease} {
		if resp, err := e.Client.TimeToLive(o.t.Context(), clientv3.LeaseID(kv)); err != nil || resp.TTL <= 0 {
			return fmt.Errorf("lease %x is over (%v)", kv, err)
		}
	}
	if s, ok := o.status(); !ok || len(s.Degraded) > 0 {
		return fmt.Errorf("degraded: %s", s.degraded())
	}
	return nil
}
