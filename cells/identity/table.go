// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/agents"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// table indexes pods by (namespace, labels, service account), CiliumIdentities, and the label sets that map one to the
// other. It is not safe for concurrent use.
type table struct {
	cluster string
	filters *filters
	keeps   []func(source, key string) bool // by filter
	fleet   *agents.Fleet
	numbers *numbers
	random  func(of int) int
	// inUseByEndpoint reports whether an endpoint has an identity with this number, with any labels of its pod.
	inUseByEndpoint func(identity.Number) bool
	// endpointsWith yields the endpoints that have it.
	endpointsWith func(identity.Number) iter.Seq[slim.Key]
	// numberOfEndpoint returns the number that the endpoint of a pod has.
	numberOfEndpoint func(pod slim.Key) (identity.Number, bool)
	now              time.Time // set by the caller

	synced         bool
	pods           slim.KeyMap[*pod]
	several        map[slim.Key]bool                      // pods with more than one template
	large          map[slim.Key]bool                      // pods whose labels are too large
	unmanaged      map[slim.String]map[slim.Key]*slim.Pod // by node without CiliumNode
	nodes          map[string]bool
	withoutNodes   bool // agents make no CiliumNodes
	namespaces     map[string]*namespace
	sets           map[slim.Labels]*set
	objects        map[identity.Number]*object
	owners         map[identity.Number]*set // by chosen number
	awaitingNumber map[*set]bool            // without a number because none is free
	largeHeld      largeHeld                // the last one
	brakes         brakes
	unbraked       bool // no namespace waits for another identity
	unconfirmed    map[identity.Number]slim.Revision
	earlyReasons   map[slim.Key]string // why pods need no identity, until markSynced

	used       int // sets with pods
	idle       int // bytes of the others, ordinary ones aside
	duplicates int // sets with more than one object
	havePorts  int // objects of sets with named ports
	scratch    specs

	observed bool       // changed is recorded
	changed  []slim.Key // pods whose identity changed
	dirty    []*set     // to be enqueued
}

// pod is a pod that has an identity, waits for its namespace, or is unmanaged. It is one of several where its agent may
// compute its labels in several ways.
type pod struct {
	name     string
	node     slim.String
	template *template // nil for an unmanaged pod
	index    int       // in template.pods
	next     *pod      // the same pod with another template
}

// has reports whether the templates of a pod have these specs, in this order.
func (p *pod) has(all *specs) bool {
	if p.template == nil {
		return false
	}
	n := 0
	for ; p != nil; p = p.next {
		if n == all.n || p.template.spec != all.all[n] {
			return false
		}
		n++
	}
	return n == all.n
}

// key is the key of a pod that is not unmanaged.
func (p *pod) key() slim.Key { return slim.Key{Namespace: p.template.namespace.name, Name: p.name} }

// namespace is the part of a namespace that identities depend on.
type namespace struct {
	name      string
	exists    bool
	labels    slim.Labels // those that are part of identities
	templates map[spec]*template
}

// spec is what all pods of a template have in common.
type spec struct {
	labels         slim.Labels
	serviceAccount slim.String
	ports          slim.NamedPorts // none unless they are part of the identity
	filter         filterIndex
}

// template is the pods of a namespace that have the same spec. Their set is computed once.
type template struct {
	spec
	namespace *namespace
	set       *set // nil while the namespace is unknown, and if no label is kept
	index     int  // in set.templates
	pods      []*pod
}

// set is a label set, with its pods and objects.
type set struct {
	labels    slim.Labels
	templates []*template
	pods      int
	objects   []*object // with these original labels; the oldest first

	number     identity.Number // chosen; 0 is none
	exists     bool            // the object of number exists with the labels
	fresh      bool            // the object of number never existed
	uncertain  bool            // a create request failed, and may yet take effect
	inFlight   bool            // a request is under way
	collisions int             // numbers in a row that exist with other labels
	queuedAt   time.Time       // zero if it is not queued
}

func newTable(cluster string, bounds identity.Range, f *filters, fleet *agents.Fleet, random func(of int) int) *table {
	t := &table{
		cluster: cluster, filters: f, fleet: fleet, numbers: newNumbers(bounds), random: random,
		inUseByEndpoint:  func(identity.Number) bool { return false },
		endpointsWith:    func(identity.Number) iter.Seq[slim.Key] { return func(func(slim.Key) bool) {} },
		numberOfEndpoint: func(slim.Key) (identity.Number, bool) { return 0, false },
		unmanaged:        map[slim.String]map[slim.Key]*slim.Pod{}, nodes: map[string]bool{},
		namespaces: map[string]*namespace{}, sets: map[slim.Labels]*set{}, objects: map[identity.Number]*object{},
		owners: map[identity.Number]*set{}, awaitingNumber: map[*set]bool{}, brakes: brakes{}, unconfirmed: map[identity.Number]slim.Revision{},
		earlyReasons: map[slim.Key]string{}, several: map[slim.Key]bool{}, large: map[slim.Key]bool{},
	}
	for _, filter := range f.all {
		t.keeps = append(t.keeps, memoize(filter.Keeps))
	}
	return t
}

// memoize caches the results of a filter, which are expensive, for a bounded number of keys.
func memoize(keeps func(source, key string) bool) func(source, key string) bool {
	type label struct{ source, key string }
	known := map[label]bool{}
	return func(source, key string) bool {
		kept, ok := known[label{source, key}]
		if !ok {
			if kept = keeps(source, key); len(known) < 1<<13 {
				known[label{source, key}] = kept
			}
		}
		return kept
	}
}

// drain returns and clears the sets to enqueue and the pods whose identity changed.
func (t *table) drain() (dirty []*set, changed []slim.Key) {
	dirty, changed = t.dirty, t.changed
	t.dirty, t.changed = nil, nil
	return dirty, changed
}

func (t *table) enqueue(s *set) {
	if !t.synced || s == nil {
		return
	}
	if s.queuedAt.IsZero() {
		s.queuedAt = t.now
	}
	t.dirty = append(t.dirty, s)
}

// recordChanged records that the identity of the pods of a set changed.
func (t *table) recordChanged(s *set) {
	for _, tmpl := range s.templates {
		t.recordTemplateChanged(tmpl)
	}
}

// Why pods have no identity, or wait for one.
const (
	hostNetwork   = "none: the pod is in the network of its node"
	finished      = "none: the pod has finished"
	unmanagedNode = "none: the pod's node has no CiliumNode"
	noNamespace   = "waits: the pod's namespace is not known yet"
	noLabelKept   = "none: the filter keeps none of the pod's labels"
	largeLabels   = "none: the labels of the pod have more than 32 KiB together: remove some"

	createForbidden = "waits: it is forbidden to create ciliumidentities.cilium.io"

	phaseSuccess = "Succeeded"
	phaseFailed  = "Failed"
)

// upsertPod records the state of a pod. It returns why the pod has no identity, if it has none.
func (t *table) upsertPod(p *slim.Pod) (reason string) {
	key := p.Key()
	was, _ := t.pods.Get(key)
	reason = t.exclusion(p, was)
	if reason != "" {
		t.deletePod(key)
		t.recordEarlyReason(key, reason)
		if reason == unmanagedNode {
			t.parkUnmanaged(p)
		}
		return reason
	}
	all := t.specsOf(p, was)
	if was != nil && was.has(all) {
		for same := was; same != nil; same = same.next {
			same.node = p.Spec.NodeName
		}
		return was.template.waitReason()
	}
	if was != nil && was.template == nil {
		t.deletePod(key)
		was = nil
	}
	delete(t.earlyReasons, key)
	first := t.addPod(key, p.Spec.NodeName, all)
	for ; was != nil; was = was.next { // last: what it still needs is needed all the time
		t.leaveTemplate(was)
	}
	return first.waitReason()
}

// exclusion is why a pod needs no identity, "" for one that does.
func (t *table) exclusion(p *slim.Pod, was *pod) string {
	switch phase := p.Status.Phase.String(); {
	case p.Spec.HostNetwork:
		return hostNetwork
	case phase == phaseSuccess || phase == phaseFailed:
		return finished
	case p.LabelsCut:
		return largeLabels
	case !t.isManaged(p.Spec.NodeName, was):
		return unmanagedNode
	}
	return ""
}

// isManaged reports whether pods on a node are managed. A managed pod stays so: a CiliumNode may be missing for a
// moment.
func (t *table) isManaged(node slim.String, was *pod) bool {
	return t.withoutNodes || node == slim.String{} || t.nodes[node.String()] || was != nil && was.template != nil && was.node == node
}

func (t *table) parkUnmanaged(p *slim.Pod) {
	parked := t.unmanaged[p.Spec.NodeName]
	if parked == nil {
		parked = map[slim.Key]*slim.Pod{}
		t.unmanaged[p.Spec.NodeName] = parked
	}
	parked[p.Key()] = p
	t.pods.Set(p.Key(), &pod{name: p.Name, node: p.Spec.NodeName})
}

// addPod adds a pod to the templates of its specs, and returns the first.
func (t *table) addPod(key slim.Key, node slim.String, all *specs) *template {
	first := &pod{name: key.Name, node: node}
	t.joinTemplate(first, key.Namespace, all.all[0])
	t.pods.Set(key, first)
	if delete(t.several, key); all.n > 1 {
		t.several[key] = true
	}
	last := first
	for _, sp := range all.all[1:all.n] {
		other := &pod{name: key.Name, node: node}
		t.joinTemplate(other, key.Namespace, sp)
		last.next, last = other, other
	}
	return first.template
}

// joinTemplate adds a pod to the template of a spec.
func (t *table) joinTemplate(p *pod, namespace string, sp spec) {
	n := t.ensureNamespace(namespace)
	tmpl := n.templates[sp]
	if tmpl == nil {
		tmpl = &template{spec: sp, namespace: n}
		n.templates[sp] = tmpl
	}
	p.template, p.index = tmpl, len(tmpl.pods)
	tmpl.pods = append(tmpl.pods, p)
	if len(tmpl.pods) == 1 {
		t.assignTemplate(tmpl)
	} else if tmpl.set != nil {
		tmpl.set.pods++
	}
	if tmpl.set != nil {
		t.enqueue(tmpl.set)
		if t.observed && tmpl.set.number != 0 {
			t.changed = append(t.changed, p.key())
		}
	}
}

// deletePod records that a pod was deleted.
func (t *table) deletePod(key slim.Key) {
	delete(t.earlyReasons, key)
	delete(t.several, key)
	p, _ := t.pods.Get(key)
	if p == nil {
		return
	}
	t.pods.Delete(key)
	if p.template == nil {
		delete(t.unmanaged[p.node], key)
		if len(t.unmanaged[p.node]) == 0 {
			delete(t.unmanaged, p.node)
		}
		return
	}
	for ; p != nil; p = p.next {
		t.leaveTemplate(p)
	}
}

// leaveTemplate removes a pod from its template.
func (t *table) leaveTemplate(p *pod) {
	tmpl := p.template
	last := tmpl.pods[len(tmpl.pods)-1]
	tmpl.pods[p.index], last.index = last, p.index
	tmpl.pods[len(tmpl.pods)-1] = nil
	tmpl.pods = tmpl.pods[:len(tmpl.pods)-1]
	if s := tmpl.set; s != nil {
		if t.observed && s.number != 0 {
			t.changed = append(t.changed, p.key())
		}
		t.removePods(s, 1)
	}
	if len(tmpl.pods) == 0 {
		t.leaveSet(tmpl)
		delete(tmpl.namespace.templates, tmpl.spec)
		t.pruneNamespace(tmpl.namespace)
	}
}

func (t *table) ensureNamespace(name string) *namespace {
	n := t.namespaces[name]
	if n == nil {
		n = &namespace{name: name, templates: map[spec]*template{}}
		t.namespaces[name] = n
	}
	return n
}

func (t *table) pruneNamespace(n *namespace) {
	if !n.exists && len(n.templates) == 0 {
		delete(t.namespaces, n.name)
	}
}

// upsertNamespace records the state of a namespace. It is cheap unless labels changed that are part of identities.
func (t *table) upsertNamespace(o *slim.Namespace) {
	kept := map[string]string{}
	for key, value := range o.Labels.All() {
		if labels.KeepsNamespaceLabel(t.keeps[0], key) { // in what releases differ, these labels do not
			kept[key] = value
		}
	}
	n, now := t.ensureNamespace(o.Name), slim.MakeLabels(kept)
	if n.exists && n.labels == now {
		return
	}
	n.exists, n.labels = true, now
	for _, tmpl := range n.templates {
		t.assignTemplate(tmpl)
		t.enqueue(tmpl.set)
	}
}

// deleteNamespace records that a namespace was deleted. Its pods keep their identities, new ones wait until it exists
// again.
func (t *table) deleteNamespace(name string) {
	if n := t.namespaces[name]; n != nil {
		n.exists = false
		t.pruneNamespace(n)
	}
}

func (t *table) addNode(name string) {
	t.nodes[name] = true
	for _, p := range t.unmanaged[slim.MakeString(name)] {
		t.upsertPod(p)
	}
}

func (t *table) deleteNode(name string) { delete(t.nodes, name) }

// assignTemplate computes the set of a template's pods, and moves them there.
func (t *table) assignTemplate(tmpl *template) {
	var to *set
	if tmpl.namespace.exists {
		to = t.ensureSet(t.identityLabels(tmpl))
	}
	if to == tmpl.set {
		return
	}
	t.leaveSet(tmpl)
	t.joinSet(tmpl, to)
}

// identityLabels returns the labels of the identity of a template's pods.
func (t *table) identityLabels(tmpl *template) slim.Labels {
	return slim.MakeLabels(labels.Pod{
		Cluster: t.cluster, Namespace: tmpl.namespace.name, NamespaceLabels: tmpl.namespace.labels.All(),
		ServiceAccount: tmpl.serviceAccount.String(), Labels: tmpl.labels.All(), NamedPorts: tmpl.namedPorts(),
	}.Identity(t.keeps[tmpl.filter]))
}

func (s spec) namedPorts() iter.Seq[labels.NamedPort] {
	return func(yield func(labels.NamedPort) bool) {
		for p := range s.ports.All() {
			if !yield(labels.NamedPort{Name: p.Name, Protocol: p.Protocol, Port: p.Port}) {
				return
			}
		}
	}
}

// ensureSet returns the set of labels, nil for none.
func (t *table) ensureSet(of slim.Labels) *set {
	if of == (slim.Labels{}) {
		return nil
	}
	s := t.sets[of]
	if s == nil {
		s = &set{labels: of}
		t.sets[of] = s
		t.idle += s.idleSize()
	}
	return s
}

func (t *table) joinSet(tmpl *template, s *set) {
	tmpl.set = s
	if s == nil {
		return
	}
	tmpl.index = len(s.templates)
	s.templates = append(s.templates, tmpl)
	t.addPods(s, len(tmpl.pods))
	t.recordTemplateChanged(tmpl)
}

// leaveSet removes a template and its pods from their set.
func (t *table) leaveSet(tmpl *template) {
	s := tmpl.set
	if s == nil {
		return
	}
	last := s.templates[len(s.templates)-1]
	s.templates[tmpl.index], last.index = last, tmpl.index
	s.templates[len(s.templates)-1] = nil
	s.templates = s.templates[:len(s.templates)-1]
	tmpl.set = nil
	t.recordTemplateChanged(tmpl)
	t.removePods(s, len(tmpl.pods))
}

func (t *table) recordTemplateChanged(tmpl *template) {
	if !t.observed {
		return
	}
	for _, p := range tmpl.pods {
		t.changed = append(t.changed, p.key())
	}
}

func (t *table) addPods(s *set, pods int) {
	if s.pods == 0 && pods > 0 {
		t.used++
		t.idle -= s.idleSize()
	}
	s.pods += pods
	t.updateChoice(s)
}

func (t *table) removePods(s *set, pods int) {
	if s.pods > 0 && s.pods == pods {
		t.idle += s.idleSize()
		if t.used--; s.number != 0 {
			t.brakes.giveUp(podNamespace(s.labels), s.weight(), t.now)
		}
	}
	s.pods -= pods
	t.updateChoice(s)
}
