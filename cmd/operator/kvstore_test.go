// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// The invariants of etcd, on real processes.

const (
	heartbeatKey  = "cilium/.heartbeat"
	configKey     = "cilium/cluster-config/c1"
	chatterPrefix = "cilium/chatter/"
	clockKey      = "cilium/clock"
)

// withEtcd are the options of an operator that keeps things in an etcd.
func withEtcd(e *kvstoretest.Etcd, args ...string) []string {
	return append([]string{
		"--kvstore=etcd", "--kvstore-opt=etcd.qps=1000,etcd.address=" + e.Endpoints()[0],
		"--cluster-name=c1", "--cluster-id=1", "--kvstore-heartbeat-interval=1s",
	}, args...)
}

func eventsOf(r *kvstoretest.Record, key string) (events []*clientv3.Event) {
	for _, e := range r.Events() {
		if string(e.Kv.Key) == key {
			events = append(events, e)
		}
	}
	return events
}

// Invariant 1, in etcd: on a converged store, with services, nodes and identities of all modes, a restart writes nothing but
// the heartbeat, the probes of the status, and, at most once, the cluster's keys that it puts on a lease of its own. Keys of
// services stay where they are (KV-L6). Nothing is written of what follows from a remote cluster: slices, ServiceImports, derived
// Services, and exports.
func TestInvariant1InEtcd(t *testing.T) {
	for _, mode := range []string{"kvstore", "doublewrite-readcrd"} {
		t.Run(mode, func(t *testing.T) { restartInEtcd(newEtcdDuties(newWorld(t), kvstoretest.Start(t, 1), mode)) })
	}
}

// marked reports whether each CiliumIdentity is marked as unused, as none is used by a CiliumEndpoint.
func (d *etcdDuties) marked() bool {
	d.t.Helper()
	return d.mode == "kvstore" || !slices.ContainsFunc(d.list(v2.CiliumIdentityResource).Items, func(u unstructured.Unstructured) bool {
		return u.GetAnnotations()["io.cilium.heartbeat"] == ""
	})
}

func restartInEtcd(d *etcdDuties) {
	t, e := d.t, d.etcd
	record := e.Follow("", 1)
	wanted := d.populate()
	d.joinMesh()
	maps.DeleteFunc(wanted.nodes, func(key, _ string) bool { return e.Get(key) == nil }) // agents write them
	d.populateMesh()
	o, _ := d.run("first", nil, d.withDuties()...)
	o.leads()
	o.until("the store has converged", func() bool { return d.converged(wanted) && d.marked() && len(eventsOf(record, heartbeatKey)) >= 3 })
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	beats := eventsOf(record, heartbeatKey)
	for i := 1; i < len(beats); i++ {
		if beats[i].Kv.Version != beats[i-1].Kv.Version+1 || beats[i].Kv.Lease == 0 {
			t.Errorf("heartbeat %d is %v", i, beats[i].Kv)
		}
	}

	audit := d.Audit(t)
	before, leases := map[string]*mvccpb.KeyValue{}, countLeases(t, e)
	for _, key := range d.keys("") {
		before[key] = e.Get(key)
	}
	record = e.Follow("", e.Revision()+1)
	o, _ = d.run("second", nil, d.withDuties()...)
	o.leads()
	o.until("the heartbeat moves", func() bool { return len(eventsOf(record, heartbeatKey)) >= 3 })
	d.sentinels(wanted) // every duty is at work
	o.until("it does what is new", func() bool { return d.converged(wanted) })
	attempts := json.NewDecoder(strings.NewReader(o.ask("writes", "--json")))
	if code := o.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	own := map[string]bool{heartbeatKey: true, configKey: true, servicesMarker: true, exportsMarker: true}
	for _, event := range record.Events() {
		key := string(event.Kv.Key)
		was, put := before[key], event.Type == clientv3.EventTypePut
		switch {
		case key == heartbeatKey && put, strings.HasPrefix(key, initLockKeys), isSentinel(key):
		case own[key] && put && string(event.Kv.Value) == string(was.Value) && event.Kv.Lease != was.Lease && event.Kv.Version == was.Version+1:
		default:
			t.Errorf("a restart wrote %s %v, which was %v", event.Type, event.Kv, was)
		}
	}
	for attempts.More() { // those without an effect are among them
		var w explain.Write
		if err := attempts.Decode(&w); err != nil {
			t.Fatal(err)
		}
		key := w.Resource + "/" + w.Name
		if strings.HasPrefix(key, "cilium/") && !own[key] && !strings.HasPrefix(key, initLockKeys) && !isSentinel(key) {
			t.Errorf("a restart tried %s", w)
		}
	}
	if n := countLeases(t, e) - leases; n > 2 {
		t.Errorf("a restart made %d leases, more than one for keys and one for locks", n)
	}
	seen := d.requests(audit, "second")
	others := seen.writes().which(func(e clustertest.AuditEvent) bool {
		return !isSentinel(e.ObjectRef.Name) && !d.isOfSentinel(e.ObjectRef.Name)
	})
	if len(seen) == 0 || len(others) > 0 {
		t.Errorf("of %d requests to the API server these wrote:\n%s", len(seen), others)
	}
}

// converged are the keys of a converged store, and what their values have.
type converged struct {
	services, nodes, identities map[string]string
}

// populate makes objects, their users, and garbage.
func (d *etcdDuties) populate() converged {
	d.t.Helper()
	want := converged{map[string]string{}, map[string]string{}, map[string]string{}}
	for i := range 20 {
		name, address := fmt.Sprint("service-", i), fmt.Sprint("10.1.0.", i+1)
		d.service(name, address)
		want.services[d.serviceKey(name)] = `"` + address + `"`

		node := fmt.Sprint("node-", i)
		d.addNode(node, fmt.Sprintf("10.2.%d.0/24", i))
		d.boot(node, "boot-"+fmt.Sprint(i))
		want.nodes[nodeKeys+node] = `"BootID":"boot-` + fmt.Sprint(i) + `"`
		if i%2 == 0 {
			d.etcd.Put(nodeKeys+node, agentKey(node, "boot-"+fmt.Sprint(i)), d.agents)
		}

		d.identity(i, i%4 > 0)
		if i%4 > 0 {
			want.identities[identityKey(i)] = labelsOf(i)
		}
	}
	d.etcd.Put(d.serviceKey("gone"), "{}", 0)
	d.etcd.Put(nodeKeys+"gone", agentKey("gone", ""), 0)
	return want
}

// populateMesh has the remote cluster serve all Services, with one slice and with two, and export some names that this cluster
// exports, too, and others that it does not.
func (d *etcdDuties) populateMesh() {
	d.t.Helper()
	for i := range 20 {
		name := d.named(fmt.Sprint("service-", i))
		d.a.serve(name, 80, addressesOf(i, 1+i%(2*mostInSlice))...)
		if i%4 < 2 {
			d.mesh.serviceExport(name.Namespace, name.Name)
		}
		if i%4 > 0 {
			d.a.export(name, 2001, []string{"ClusterSetIP", "Headless"}[i%2], 80, 9090)
		}
	}
	d.mesh.serviceImport(d.namespace, "of-user", "ClusterSetIP")
}

// addressesOf are n addresses.
func addressesOf(service, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("10.40.%d.%d", service, i+1))
	}
	return all
}

// isOfSentinel reports whether an object follows from the sentinel of the remote cluster.
func (d *etcdDuties) isOfSentinel(name string) bool {
	return d.mesh != nil && (strings.HasPrefix(name, sentinel+"-a-") || name == derivedServiceName(d.named(sentinel)))
}

// converged reports whether etcd has what it should, and the synced markers, and objects what follows from remote clusters.
func (d *etcdDuties) converged(want converged) bool {
	d.t.Helper()
	if d.mesh != nil && !d.mesh.rests() {
		return false
	}
	return d.holds(serviceKeys, want.services) && d.holds(nodeKeys, want.nodes) && d.holds(identityKeys, want.identities) &&
		d.etcd.Get(servicesMarker) != nil && d.etcd.Get(exportsMarker) != nil && d.etcd.Get(configKey) != nil
}

const sentinel = "sentinel"

// sentinelIdentity is garbage.
const sentinelIdentity = 900

func isSentinel(name string) bool {
	return strings.HasSuffix(name, sentinel) || name == identityKey(sentinelIdentity) || name == fmt.Sprint(firstIdentity+sentinelIdentity)
}

// sentinels gives every duty something to do.
func (d *etcdDuties) sentinels(want converged) {
	d.t.Helper()
	d.service(sentinel, "10.1.1.1")
	want.services[d.serviceKey(sentinel)] = `"10.1.1.1"`
	d.addNode(sentinel, "10.2.99.0/24")
	if d.mesh == nil {
		want.nodes[nodeKeys+sentinel] = `"10.2.99.0"`
	}
	d.identity(sentinelIdentity, false)
	if d.mesh != nil {
		d.a.serve(d.named(sentinel), 80, addressesOf(99, 2)...)
		d.a.export(d.named(sentinel), 2001, "ClusterSetIP", 80)
	}
}

func countLeases(t *testing.T, e *kvstoretest.Etcd) int {
	t.Helper()
	resp, err := e.Client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Leases)
}

// etcdChatter in the environment is a name under which the term writes a key of
// etcd all the time.
const etcdChatter = "SKEP_TEST_ETCD_CHATTER"

var etcdChatterCell = cell.Module("etcd-chatter", "Writes a key without a pause", cell.EnabledBy(kvstore.InUse),
	cell.ProvidePrivate(newEtcdChatterer), cell.Job("write", newEtcdChatter), cell.Hook("slow", newSlowEtcdStop))

// etcdChatterer is what the job and the slow hook have in common: the hook, which
// comes after the job, stops before it.
type etcdChatterer struct{ kvstore.Client }

func newEtcdChatterer(c kvstore.Client) *etcdChatterer { return &etcdChatterer{c} }

func newSlowEtcdStop(*etcdChatterer) lifecycle.Hook { return newSlowStop(nil) }

func newEtcdChatter(c *etcdChatterer, log *slog.Logger) job.Job {
	name := os.Getenv(etcdChatter)
	return job.OneShot(func(ctx context.Context) error {
		ctx = k8s.WithCause(ctx, &k8s.Cause{Rule: "etcd chatter"})
		for n := 0; name != "" && ctx.Err() == nil; {
			switch err := c.Write(ctx, kvstore.Put(chatterPrefix+name, []byte(strconv.Itoa(n)))); {
			case err != nil:
				log.Debug("etcd chatter", "error", err)
			case n == 0:
				log.Info("etcd chatter has begun")
				fallthrough
			default:
				n++
			}
			time.Sleep(pace()) // a pace, not a wait
		}
		return ctx.Err()
	})
}

// tick is a write by the test: what has a lower revision was written before
// after, what has a higher one not before before.
type tick struct {
	revision      int64
	before, after time.Time
}

// clock writes ticks until it is stopped.
type clock struct {
	ticks []tick
	stop  func()
}

func startClock(t *testing.T, e *kvstoretest.Etcd) *clock {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &clock{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			before := time.Now()
			resp, err := e.Client.Put(ctx, clockKey, "")
			if err == nil {
				c.ticks = append(c.ticks, tick{resp.Header.Revision, before, time.Now()})
			}
			time.Sleep(5 * time.Millisecond) // a pace, not a wait
		}
	})
	c.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(c.stop)
	return c
}

// bounds are the times between which something was written. The clock has
// stopped.
func (c *clock) bounds(revision int64) (from, until time.Time) {
	until = time.Now()
	for _, tick := range c.ticks {
		if tick.revision > revision {
			return from, tick.after
		}
		from = tick.before
	}
	return from, until
}

// checkEtcdTerms holds every write of a user's chatter to the terms that the lease
// grants. One is late if it is even at the earliest that it can have been made.
func checkEtcdTerms(t *testing.T, all requests, c *clock, record *kvstoretest.Record, user string, renewDeadline time.Duration) {
	t.Helper()
	grants := all.which(func(e clustertest.AuditEvent) bool {
		return e.User.Username == user && onLease(e) && e.Stored()
	})
	type term struct{ sent, end time.Time }
	terms := make([]term, len(grants))
	for i, g := range grants {
		sent, known := g.Sent()
		if !known {
			t.Fatalf("it is not known when a lease was written: %s", requests{g})
		}
		end, err := termEnd(g, sent, renewDeadline)
		if err != nil {
			t.Fatal(err)
		}
		terms[i] = term{sent, end}
	}
	writes := eventsOf(record, chatterPrefix+user)
	for _, w := range writes {
		from, until := c.bounds(w.Kv.ModRevision)
		var end time.Time
		for _, granted := range terms {
			if granted.sent.Before(until) {
				end = granted.end
			}
		}
		if late := from.Sub(end); late > slack {
			t.Errorf("%s wrote revision %d at least %s after the end of its term", user, w.Kv.ModRevision, late)
		}
	}
	if len(writes) == 0 || len(grants) == 0 {
		t.Errorf("%s made %d writes under %d grants: the test shows nothing", user, len(writes), len(grants))
	}
}

// Invariant 2, in etcd: no write leaves the process outside its term, neither to
// etcd nor to the API server.
func TestInvariant2InEtcd(t *testing.T) {
	for _, test := range []struct {
		name string
		harm func(*operator, *clustertest.Proxy) (heal func())
		env  []string
	}{
		{"paused", func(o *operator, _ *clustertest.Proxy) func() {
			o.signal(syscall.SIGSTOP)
			return func() { o.signal(syscall.SIGCONT) }
		}, nil},
		{"the API server is gone and etcd is not", func(o *operator, p *clustertest.Proxy) func() {
			p.BlackHole(o.t)
			return func() { p.Heal(o.t) }
		}, nil},
		{"slow stop", func(o *operator, p *clustertest.Proxy) func() {
			rule := p.Answer(o.t, http.StatusInternalServerError, clustertest.Match{Resources: []string{"leases"}})
			return func() { rule.Remove(o.t) }
		}, []string{slowStop + "=4s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w, e := newWorld(t), kvstoretest.Start(t, 1)
			audit, record, c := w.Audit(t), e.Follow("cilium/", 1), startClock(t, e)
			run := func(user string) (*operator, *clustertest.Proxy) {
				env := append([]string{chatter + "=chatter", etcdChatter + "=" + user}, test.env...)
				return w.run(user, env, withEtcd(e, quickLease...)...)
			}
			first, proxy := run("first")
			first.says("chatter has begun", 2) // both
			second, _ := run("second")
			second.says("standing by", 1)
			for round := range 2 {
				heal := test.harm(first, proxy)
				second.says("chatter has begun", 2)
				theirs := e.Revision() // the second leads: the first must not write from here on
				heal()
				first.until("it stands by", func() bool {
					s, ok := first.status()
					return ok && !s.Election.Leading
				})
				ours := e.Revision()
				if second.log.Count("lost the lease") > 0 { // the first may have led again
					t.Logf("round %d is judged by terms alone: the second lost its lease", round)
					theirs = ours
				}
				for _, event := range eventsOf(record, chatterPrefix+"first") {
					if at := event.Kv.ModRevision; at > theirs && at <= ours {
						t.Errorf("the first wrote revision %d, and the second led from %d on", at, theirs)
					}
				}
				if code := second.stop(); code != 0 {
					t.Errorf("exit code %d", code)
				}
				first.says("chatter has begun", 2*(round+2))
				second, _ = run("second")
				second.says("standing by", 1)
			}
			for _, o := range []*operator{first, second} {
				if code := o.stop(); code != 0 {
					t.Errorf("exit code %d", code)
				}
			}
			c.stop()
			last := e.Revision()
			eventually(t, "all writes are recorded", func() bool {
				events := record.Events()
				return len(events) > 0 && (events[len(events)-1].Kv.ModRevision == last || e.Get(clockKey).ModRevision == events[len(events)-1].Kv.ModRevision)
			})
			all := w.requests(audit, "first", "second")
			checkTerms(t, all, time.Second, "first", "second")
			for _, user := range []string{"first", "second"} {
				checkEtcdTerms(t, all, c, record, user, time.Second)
			}
		})
	}
}
