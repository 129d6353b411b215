// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// churnInEtcd are Services, nodes and identities that come and go, and a judge of all that happens to their keys. act and
// what waits are of one goroutine; agents have another one, for they wait for etcd.
type churnInEtcd struct {
	*etcdDuties
	r     *rand.Rand
	made  int
	queue sync.WaitGroup // what agents have to do
	todo  chan func(context.Context) error

	mu         sync.Mutex
	services   map[string]string           // addresses by key
	nodes      map[string]string           // boot ids by key, of nodes without an agent
	agentNodes map[string]string           // the same of nodes with an agent
	used       map[int]bool                // identities
	spared     map[string]bool             // keys that were not desired at some time since all was well
	state      map[string]*mvccpb.KeyValue // as the judge has seen it
	deleted    []*mvccpb.KeyValue          // keys that were live, as they were
	wrong      []string
	checked    int64 // the last revision that the judge has seen
	changes    int
	collected  int // identities
	expired    int // keys that went with a lease
}

// Others' keys under the same prefixes.
const (
	otherService  = "cilium/state/services/v1/c10/ns/theirs"
	otherNode     = "cilium/state/nodes/v1/c10/theirs"
	otherIdentity = identityKeys + "700000"
)

const mostInEtcd = 30

func newChurnInEtcd(d *etcdDuties, seed uint64) *churnInEtcd {
	d.t.Helper()
	c := &churnInEtcd{
		etcdDuties: d, r: rand.New(rand.NewPCG(seed, 5)), todo: make(chan func(context.Context) error, 100_000),
		services: map[string]string{}, nodes: map[string]string{}, agentNodes: map[string]string{}, used: map[int]bool{},
		spared: map[string]bool{}, state: map[string]*mvccpb.KeyValue{},
	}
	d.etcd.Put(otherService, "{}", 0)
	d.etcd.Put(otherNode, agentKey("theirs", ""), 0)
	d.etcd.Put(otherIdentity, labelsOf(-1), 0)
	ctx, cancel := context.WithCancel(context.WithoutCancel(d.t.Context()))
	var all sync.WaitGroup
	all.Go(func() { c.runAgents(ctx) })
	all.Go(func() { c.watch(ctx) })
	d.t.Cleanup(func() { cancel(); all.Wait() })
	return c
}

// runAgents does what agents have to do, each thing until it has succeeded.
func (c *churnInEtcd) runAgents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case do := <-c.todo:
			for ctx.Err() == nil {
				attempt, cancel := context.WithTimeout(ctx, time.Second)
				err := do(attempt)
				cancel()
				if err == nil {
					break
				}
			}
			c.queue.Done()
		}
	}
}

func (c *churnInEtcd) agent(do func(context.Context) error) {
	c.queue.Add(1)
	c.todo <- do
}

func (c *churnInEtcd) agentsAreDone() {
	c.t.Helper()
	done := make(chan struct{})
	go func() { c.queue.Wait(); close(done) }()
	eventually(c.t, "agents have done all", func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}

// act does one thing.
func (c *churnInEtcd) act() {
	c.t.Helper()
	acts := []func(){c.changeService, c.changeService, c.changeNode, c.changeAgentNode, c.changeIdentity, c.changeIdentity}
	acts[c.r.IntN(len(acts))]()
	c.made++
}

func (c *churnInEtcd) changeService() {
	name, address := fmt.Sprint("service-", c.r.IntN(mostInEtcd)), fmt.Sprintf("10.%d.%d.%d", 3+c.made/62500, c.made/250%250, c.made%250+1)
	key := c.serviceKey(name)
	switch _, exists := c.services[key]; {
	case !exists:
		c.set(c.services, key, address)
		c.service(name, address)
	case c.r.IntN(4) == 0:
		c.unset(c.services, key)
		c.removeService(name)
	default:
		c.set(c.services, key, address)
		c.move(name, address)
	}
}

func (c *churnInEtcd) changeNode() {
	name, boot := fmt.Sprint("node-", c.r.IntN(mostInEtcd)), fmt.Sprint("boot-", c.made)
	key := nodeKeys + name
	switch _, exists := c.nodes[key]; {
	case !exists:
		c.set(c.nodes, key, "")
		c.addNode(name)
	case c.r.IntN(4) == 0:
		c.unset(c.nodes, key)
		c.deleteNodes(name)
	default:
		c.set(c.nodes, key, boot)
		c.boot(name, boot)
	}
}

// changeAgentNode is about nodes whose keys their agents write.
func (c *churnInEtcd) changeAgentNode() {
	name, boot := fmt.Sprint("agent-", c.r.IntN(mostInEtcd)), fmt.Sprint("boot-", c.made)
	key := nodeKeys + name
	write := func(ctx context.Context) error {
		_, err := c.etcd.Client.Put(ctx, key, agentKey(name, boot), clientv3.WithLease(c.agents))
		return err
	}
	_, exists := c.agentNodes[key]
	c.set(c.agentNodes, key, boot)
	c.agent(write)
	if !exists { // its key is there before it
		c.agent(func(context.Context) error {
			if _, err := c.makeNode(name); !apierrors.IsAlreadyExists(err) {
				return err
			}
			return nil
		})
	}
}

func (c *churnInEtcd) changeIdentity() {
	n := c.r.IntN(mostInEtcd)
	c.mu.Lock()
	used, known := c.used[n]
	c.used[n] = !used
	c.mu.Unlock()
	if !known {
		c.identityObject(n)
	}
	if !used {
		c.agent(func(ctx context.Context) error { return allocate(ctx, c.etcdDuties, n) })
		return
	}
	c.agent(func(ctx context.Context) error {
		_, err := c.etcd.Client.Delete(ctx, userKey(n))
		return err
	})
}

func (c *churnInEtcd) set(of map[string]string, key, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of[key] = text
}

func (c *churnInEtcd) unset(of map[string]string, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(of, key)
	c.spared[key] = true
}

// watch shows the judge all that happens, without a gap.
func (c *churnInEtcd) watch(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		from := c.checked + 1
		c.mu.Unlock()
		watching, leave := context.WithCancel(clientv3.WithRequireLeader(ctx))
		for resp := range c.etcd.Client.Watch(watching, "cilium/", clientv3.WithPrefix(), clientv3.WithRev(from)) {
			for _, e := range resp.Events {
				c.see(e)
			}
		}
		leave()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// see judges one event. What it says of others' keys holds at the revision of the event.
func (c *churnInEtcd) see(e *clientv3.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key, is := string(e.Kv.Key), e.Kv
	before := c.state[key]
	c.checked = max(c.checked, is.ModRevision)
	c.changes++
	fail := func(what string) { c.wrong = append(c.wrong, fmt.Sprintf("%s %s at %d", key, what, is.ModRevision)) }
	if slices.Contains([]string{otherService, otherNode, otherIdentity}, key) && before != nil {
		fail("is another cluster's, and was changed")
	}
	if e.Type == clientv3.EventTypePut {
		c.state[key] = is
		switch {
		case isLeased(key) && is.Lease == 0:
			fail("was written without a lease")
		case strings.HasPrefix(key, nodeKeys) && before != nil && before.Lease == int64(c.agents) && is.Lease != int64(c.agents):
			fail("was taken from the lease of its agent")
		}
		return
	}
	delete(c.state, key)
	wanted := has(c.services, key) || has(c.nodes, key) || has(c.agentNodes, key)
	switch {
	case wanted && !c.spared[key] && before != nil:
		c.deleted = append(c.deleted, before)
	case strings.HasPrefix(key, identityKeys) && before != nil:
		c.collected++
		for user := range c.state {
			if strings.HasPrefix(user, userKeys+string(before.Value)+"/") {
				fail("was deleted, and used by " + user)
			}
		}
	}
}

// isLeased reports whether the operator has to put a key on a lease.
func isLeased(key string) bool {
	return strings.HasPrefix(key, serviceKeys) || strings.HasPrefix(key, markerKeys) || key == heartbeatKey || key == configKey
}

// compare is what is wrong with the store. Keys of gone nodes and of unused identities may be there for a while. An etcd that
// does not answer within a second is the error context.DeadlineExceeded.
func (c *churnInEtcd) compare() error {
	var resp *clientv3.GetResponse
	err := c.ask(func(ctx context.Context) (err error) {
		resp, err = c.etcd.Client.Get(ctx, "cilium/", clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	is, leases := map[string]string{}, map[int64]string{}
	for _, kv := range resp.Kvs {
		key := string(kv.Key)
		is[key] = string(kv.Value)
		switch {
		case isLeased(key) && kv.Lease == 0:
			return fmt.Errorf("%s has no lease", key)
		case strings.HasPrefix(key, nodeKeys) && (kv.Lease == int64(c.agents)) != (c.agentNodes[key] != ""):
			return fmt.Errorf("%s is on lease %x", key, kv.Lease)
		}
		leases[kv.Lease] = key
		if strings.HasPrefix(key, serviceKeys) && !has(c.services, key) {
			return fmt.Errorf("%s is still there", key)
		}
	}
	for _, want := range []map[string]string{
		c.services, c.nodes, c.agentNodes, {servicesMarker: "", exportsMarker: "", configKey: "", heartbeatKey: "", otherService: "", otherNode: "", otherIdentity: ""},
	} {
		for key, text := range want {
			if value, exists := is[key]; !exists || !strings.Contains(value, `"`+text+`"`) && text != "" {
				return fmt.Errorf("%s is %q, and not %q", key, value, text)
			}
		}
	}
	for n, used := range c.used {
		if _, exists := is[identityKey(n)]; used && !exists {
			return fmt.Errorf("identity %s is used, and gone", identityKey(n))
		}
	}
	delete(leases, 0)
	for id, key := range leases {
		var resp *clientv3.LeaseTimeToLiveResponse
		err := c.ask(func(ctx context.Context) (err error) {
			resp, err = c.etcd.Client.TimeToLive(ctx, clientv3.LeaseID(id))
			return err
		})
		if err != nil {
			return err
		}
		if resp.TTL <= 0 && !strings.HasPrefix(key, initLockKeys) {
			return fmt.Errorf("%s is on lease %x, which is over", key, id)
		}
	}
	return nil
}

// ask gives one question to etcd its time.
func (c *churnInEtcd) ask(question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second) // what etcd is to answer in when it serves
	defer cancel()
	return question(ctx)
}

// garbageIsGone reports whether all keys of gone nodes, and of identities without users, are gone.
func (c *churnInEtcd) garbageIsGone() bool {
	c.t.Helper()
	identities, nodes := c.keys(identityKeys), c.keys(nodeKeys)
	c.mu.Lock()
	defer c.mu.Unlock()
	used := map[string]bool{otherIdentity: true}
	for n := range c.used {
		used[identityKey(n)] = c.used[n]
	}
	return !slices.ContainsFunc(identities, func(key string) bool { return !used[key] }) &&
		!slices.ContainsFunc(nodes, func(key string) bool { return !has(c.nodes, key) && !has(c.agentNodes, key) })
}

// judge says what went wrong since all was well the last time.
func (c *churnInEtcd) judge() {
	c.t.Helper()
	last := c.etcd.Put("cilium/judged", "", 0)
	eventually(c.t, "the judge has seen all", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.checked >= last
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kv := range c.deleted {
		resp, err := c.etcd.Client.TimeToLive(c.t.Context(), clientv3.LeaseID(kv.Lease))
		if kv.Lease != 0 && err == nil && resp.TTL < 0 {
			c.expired++
			continue
		}
		c.wrong = append(c.wrong, fmt.Sprintf("%s, live, of revision %d on lease %x (%v), was deleted", kv.Key, kv.ModRevision, kv.Lease, err))
	}
	for _, wrong := range c.wrong {
		c.t.Error(wrong)
	}
	c.deleted, c.wrong = nil, nil
	clear(c.spared)
	for i := range mostInEtcd { // what is not desired may go as often as it comes
		for key, of := range map[string]map[string]string{c.serviceKey(fmt.Sprint("service-", i)): c.services, nodeKeys + fmt.Sprint("node-", i): c.nodes} {
			if !has(of, key) {
				c.spared[key] = true
			}
		}
	}
}

func has(of map[string]string, key string) bool { _, ok := of[key]; return ok }

// String says what there was to see.
func (c *churnInEtcd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes < 100 || c.collected == 0 {
		c.t.Errorf("only %d changes were seen, and %d identities deleted: the test shows nothing", c.changes, c.collected)
	}
	return fmt.Sprintf("%d acts, %d changes, %d identities deleted, %d keys went with leases that were over; %d Services, %d nodes in the end",
		c.made, c.changes, c.collected, c.expired, len(c.services), len(c.nodes)+len(c.agentNodes))
}
