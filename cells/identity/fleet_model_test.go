// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// In any fleet, through upgrades, downgrades, changes of labels, sandboxes that are made anew and restarts of the operator, a pod
// has, before its agent looks, an identity with exactly the labels that its agent looks for, and none that an endpoint uses is
// given up (ID-32, ID-42, ID-43; numbers 20 to 27 of the contract's identities.md). What agents do is written down here once
// more, from the contract; the table's view of their pods and of endpoints lags behind nothing but what it is told.
func TestModelOfFleets(t *testing.T) {
	var total fleetTally
	for seed := range seedtest.Seeds(t, 400) {
		m := newFleetModel(seed)
		for range 120 {
			if m.step(); m.wrong != "" {
				t.Fatalf("SKEP_SEED=%d: %s\n%s", seed, m.wrong, strings.Join(m.log, "\n"))
			}
		}
		total.add(m.tally)
	}
	t.Logf("%+v", total)
	for _, n := range []int{total.Started, total.Upgraded, total.Downgraded, total.Relabeled, total.Renewed, total.Collected, total.Terms, total.Shared} {
		if n == 0 {
			t.Errorf("the histories leave something out: %+v", total)
		}
	}
}

type fleetTally struct {
	Started, Upgraded, Downgraded, Relabeled, Renewed, Collected, Terms, Shared int
}

func (t *fleetTally) add(o fleetTally) {
	t.Started, t.Upgraded, t.Downgraded, t.Relabeled = t.Started+o.Started, t.Upgraded+o.Upgraded, t.Downgraded+o.Downgraded, t.Relabeled+o.Relabeled
	t.Renewed, t.Collected, t.Terms, t.Shared = t.Renewed+o.Renewed, t.Collected+o.Collected, t.Terms+o.Terms, t.Shared+o.Shared
}

// runningAgent is the agent of a node, and fleetEndpoint what it keeps of a pod.
type runningAgent struct {
	minor int // of 1.17 to 1.20
	pods  int // that it had, for names
}

type fleetEndpoint struct {
	ports  bool // it was made by an agent of 1.20
	number identity.Number
}

type fleetModel struct {
	r         *rand.Rand
	table     *table
	nodes     map[string]*runningAgent
	pods      map[string]*slim.Pod
	endpoints map[string]fleetEndpoint
	objects   map[identity.Number]slim.Labels // CiliumIdentities
	revision  slim.Revision
	tally     fleetTally
	log       []string
	wrong     string
}

func newFleetModel(seed uint64) *fleetModel {
	m := &fleetModel{
		r: rand.New(rand.NewPCG(seed, 11)), nodes: map[string]*runningAgent{}, pods: map[string]*slim.Pod{},
		endpoints: map[string]fleetEndpoint{}, objects: map[identity.Number]slim.Labels{},
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		m.nodes[node] = &runningAgent{minor: 17 + m.r.IntN(4)}
	}
	m.lead()
	return m
}

func (m *fleetModel) logf(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *fleetModel) fail(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// lead begins a term: all is seen anew.
func (m *fleetModel) lead() {
	configured, _, _ := release.Parse(fmt.Sprint("1.", 17+m.r.IntN(4)))
	t := newTable("c", identity.Range{Min: 256, Max: 4096}, makeFilters(nil, nil), agents.NewFleet(release.Configured{Release: configured}), func(int) int { return 0 })
	m.table = t
	t.inUseByEndpoint = func(n identity.Number) bool {
		for _, e := range m.endpoints {
			if e.number == n {
				return true
			}
		}
		return false
	}
	t.numberOfEndpoint = func(pod slim.Key) (identity.Number, bool) {
		e, ok := m.endpoints[pod.Name]
		return e.number, ok
	}
	t.upsertNamespace(namespaceOf("n", pairs{"team": "a"}))
	for _, node := range slices.Sorted(maps.Keys(m.nodes)) {
		t.addNode(node)
		m.tell(stream.Upsert, node)
	}
	for _, n := range slices.Sorted(maps.Keys(m.objects)) {
		t.upsertObject(m.object(n))
	}
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		t.upsertPod(m.pods[name])
	}
	t.markSynced()
	m.tally.Terms++
	m.write()
}

func (m *fleetModel) object(n identity.Number) *ciliumio.Identity {
	m.revision++
	return identityOf(n, m.objects[n], m.revision)
}

// tell has the table see the agent of a node as it is.
func (m *fleetModel) tell(kind stream.ChangeKind, node string) {
	a := m.nodes[node]
	p := &agents.Pod{}
	p.Name, p.Namespace, p.Spec.NodeName = fmt.Sprint("cilium-", node, "-", a.pods), slim.MakeString("kube-system"), slim.MakeString(node)
	p.Spec.Images = slim.MakeImages(slim.ContainerImage{Name: "cilium-agent", Image: fmt.Sprintf("cilium:v1.%d.3", a.minor)})
	before := m.table.fleet.Running()
	changed := m.table.fleet.Apply(stream.Change[agents.Pod]{Kind: kind, Key: p.Key(), Object: p})
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if pod := m.pods[name]; slices.Contains(changed, pod.Spec.NodeName) || before != m.table.fleet.Running() {
			m.table.upsertPod(pod)
		}
	}
}

// write makes what is missing, as the workers do.
func (m *fleetModel) write() {
	for {
		dirty, _ := m.table.drain()
		if len(dirty) == 0 {
			break
		}
		for _, s := range dirty {
			of := s.labels
			todo := m.table.nextAction(of)
			if todo.number == 0 {
				continue
			}
			if todo.edited != nil {
				m.fail("identity %d is edited", todo.number)
				return
			}
			m.objects[todo.number] = of
			m.revision++
			m.table.recordCreate(of, observation{number: todo.number, labels: of, created: 1, revision: m.revision}, true)
			m.logf("made %d: %s", todo.number, of)
		}
	}
	if err := m.table.consistent(); err != nil {
		m.fail("%v", err)
	}
}

// wants are the labels that an agent of a release looks for, as the contract has it in its identities.md.
func (m *fleetModel) wants(p *slim.Pod, minor int, ports bool) slim.Labels {
	of := pairs{
		"k8s:io.kubernetes.pod.namespace": "n", "k8s:io.cilium.k8s.policy.cluster": "c",
		"k8s:io.cilium.k8s.policy.serviceaccount": "sa", "k8s:io.cilium.k8s.namespace.labels.team": "a",
	}
	for k, v := range p.Labels.All() {
		if minor < 20 || !strings.HasPrefix(k, "topology.kubernetes.io/") {
			of["k8s:"+k] = v
		}
	}
	if text := map[slim.NamedPorts]string{httpPort: "http.TCP.80", dnsPorts: "dns.UDP.53_dns-tcp.TCP.53"}[p.Spec.NamedPorts]; ports && text != "" {
		of[gen] = text
	}
	return slim.MakeLabels(of)
}

var (
	httpPort = slim.MakeNamedPorts(slim.NamedPort{Name: "http", Port: 80, Protocol: "TCP"})
	dnsPorts = slim.MakeNamedPorts(slim.NamedPort{Name: "dns-tcp", Port: 53, Protocol: "TCP"}, slim.NamedPort{Name: "dns", Port: 53, Protocol: "UDP"})
)

// look has an agent look for the identity of a pod.
func (m *fleetModel) look(name string, e fleetEndpoint) {
	p := m.pods[name]
	minor := m.nodes[p.Spec.NodeName.String()].minor
	of := m.wants(p, minor, e.ports)
	for _, n := range slices.Sorted(maps.Keys(m.objects)) {
		if m.objects[n] == of {
			e.number = n
			m.endpoints[name] = e
			if s := m.table.owners[n]; s == nil || s.pods == 0 {
				m.fail("%s uses %d, which may be collected at once: %s", name, n, of)
			}
			return
		}
	}
	m.fail("the agent 1.%d finds no identity for %s: %s", minor, name, of)
}

func (m *fleetModel) step() {
	names := slices.Sorted(maps.Keys(m.pods))
	switch k := m.r.IntN(10); {
	case k < 3 && len(names) < 6:
		m.create()
	case k == 3 && len(names) > 0:
		name := pick(m.r, names...)
		delete(m.pods, name)
		delete(m.endpoints, name)
		m.table.deletePod(slim.Key{Namespace: "n", Name: name})
		m.logf("pod %s is gone", name)
	case k == 4 && len(names) > 0:
		m.relabel(pick(m.r, names...))
	case k == 5 && len(names) > 0:
		m.start(pick(m.r, names...))
	case k < 8:
		m.exchange(pick(m.r, "n1", "n2", "n3"))
	case k == 8:
		m.collect()
	case k == 9 && m.r.IntN(4) == 0:
		m.logf("another leader")
		m.lead()
	}
	m.write()
	m.check()
}

// create makes a pod, on no node at first.
func (m *fleetModel) create() {
	p := podOf("n", fmt.Sprint("p", m.revision), pairs{"app": pick(m.r, "x", "y")})
	m.revision++
	p.Spec.ServiceAccountName = slim.MakeString("sa")
	p.Spec.NamedPorts = pick(m.r, slim.NamedPorts{}, httpPort, dnsPorts)
	m.pods[p.Name] = p
	m.table.upsertPod(p)
	m.logf("pod %s has %s", p.Name, p.Labels)
}

// start binds a pod, or has its sandbox made anew.
func (m *fleetModel) start(name string) {
	p := *m.pods[name]
	if p.Spec.NodeName == (slim.String{}) {
		node := pick(m.r, "n1", "n2", "n3")
		of := p.Labels.Map()
		if m.r.IntN(2) == 0 { // as API servers from 1.35 on do
			of["topology.kubernetes.io/zone"] = pick(m.r, "z1", "z2")
		}
		p.Spec.NodeName, p.Labels = slim.MakeString(node), slim.MakeLabels(of)
		m.pods[name] = &p
		m.table.upsertPod(&p)
		m.write()
		m.logf("pod %s is on %s with %s", name, node, p.Labels)
		m.tally.Started++
	} else {
		m.tally.Renewed++
	}
	m.look(name, fleetEndpoint{ports: m.nodes[p.Spec.NodeName.String()].minor >= 20})
	m.logf("the endpoint of %s has %d", name, m.endpoints[name].number)
	m.table.upsertPod(m.pods[name]) // its status
}

func (m *fleetModel) relabel(name string) {
	p := *m.pods[name]
	of := p.Labels.Map()
	of["app"] = pick(m.r, "x", "y", "z")
	p.Labels = slim.MakeLabels(of)
	m.pods[name] = &p
	m.table.upsertPod(&p)
	m.write()
	m.logf("pod %s has %s", name, p.Labels)
	m.tally.Relabeled++
	if e, running := m.endpoints[name]; running {
		m.look(name, e)
	}
}

// exchange has a node run an agent of another release. It looks for all endpoints of the node when it starts.
func (m *fleetModel) exchange(node string) {
	a := m.nodes[node]
	before, overlap := a.minor, m.r.IntN(2) == 0
	if !overlap {
		m.tell(stream.Delete, node)
		m.write()
	}
	old := *a
	a.pods++
	a.minor = 17 + m.r.IntN(4)
	m.tell(stream.Upsert, node)
	m.write()
	if overlap {
		m.nodes[node] = &old
		m.tell(stream.Delete, node)
		m.nodes[node] = a
		m.write()
	}
	m.logf("%s has 1.%d after 1.%d", node, a.minor, before)
	switch {
	case a.minor > before:
		m.tally.Upgraded++
	case a.minor < before:
		m.tally.Downgraded++
	}
	for _, name := range slices.Sorted(maps.Keys(m.endpoints)) {
		if m.pods[name].Spec.NodeName.String() == node {
			m.look(name, m.endpoints[name])
		}
	}
}

// collect deletes the identities that neither pods nor endpoints want.
func (m *fleetModel) collect() {
	for _, n := range slices.Sorted(maps.Keys(m.objects)) {
		s := m.table.owners[n]
		if s != nil && s.pods > 0 || m.table.inUseByEndpoint(n) {
			continue
		}
		delete(m.objects, n)
		m.revision++
		m.table.deleteObject(n.String(), m.revision)
		m.tally.Collected++
		m.logf("%d is collected", n)
	}
}

// check looks at what other duties are told.
func (m *fleetModel) check() {
	for name, e := range m.endpoints {
		p, _ := m.table.pods.Get(slim.Key{Namespace: "n", Name: name})
		if p == nil || p.template == nil || p.template.set == nil || p.template.set.number != e.number && len(m.duplicatesOf(e.number)) < 2 {
			m.fail("the endpoint of %s has %d, and others are told another", name, e.number)
		}
		if p != nil && p.next != nil {
			m.tally.Shared++
		}
	}
}

func (m *fleetModel) duplicatesOf(n identity.Number) (all []identity.Number) {
	for other, of := range m.objects {
		if of == m.objects[n] {
			all = append(all, other)
		}
	}
	return all
}
