// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"iter"
	"time"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// table indexes pods by (namespace, labels, service account), CiliumIdentities, and the label sets that map one to the
// other. It is not safe for concurrent use.
type table struct {
	cluster    string
	keepsLabel func(source, key string) bool
	namedPorts bool // named ports are part of identities
	numbers    *numbers
	random     func(of int) int
	// inUseByEndpoint reports whether an endpoint has an identity with this number, with any labels of its pod.
	inUseByEndpoint func(identity.Number) bool
	// endpointsWith yields the endpoints that have it.
	endpointsWith func(identity.Number) iter.Seq[slim.Key]
	now           time.Time // set by the caller

	synced         bool
	pods           slim.KeyMap[*pod]
	unmanaged      map[slim.String]map[slim.Key]*slim.Pod // by node without CiliumNode
	nodes          map[string]bool
	namespaces     map[string]*namespace
	sets           map[slim.Labels]*set
	objects        map[identity.Number]*object
	owners         map[identity.Number]*set  // by chosen number
	awaitingNumber map[*set]bool             // without a number because none is free
	mismatched     map[slim.Labels][]*object // by their metadata.labels; the oldest first
	unconfirmed    map[identity.Number]slim.Revision
	earlyReasons   map[slim.Key]string // why pods need no identity, until markSynced

	used       int // sets with pods
	duplicates int // sets with more than one object

	observed bool       // changed is recorded
	changed  []slim.Key // pods whose identity changed
	dirty    []*set     // to be enqueued
}

// pod is a pod that has an identity, waits for its namespace, or is unmanaged.
type pod struct {
	name     string
	node     slim.String
	template *template // nil for an unmanaged pod
	index    int       // in template.pods
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
	ports          slim.NamedPorts // none unless they are part of identities
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
	meta      slim.Labels // see metadata
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

func newTable(cluster string, bounds identity.Range, keeps func(source, key string) bool, random func(of int) int) *table {
	return &table{
		cluster: cluster, keepsLabel: memoize(keeps), numbers: newNumbers(bounds), random: random,
		inUseByEndpoint: func(identity.Number) bool { return false },
		endpointsWith:   func(identity.Number) iter.Seq[slim.Key] { return func(func(slim.Key) bool) {} },
		unmanaged:       map[slim.String]map[slim.Key]*slim.Pod{}, nodes: map[string]bool{},
		namespaces: map[string]*namespace{}, sets: map[slim.Labels]*set{}, objects: map[identity.Number]*object{},
		owners: map[identity.Number]*set{}, awaitingNumber: map[*set]bool{}, unconfirmed: map[identity.Number]slim.Revision{},
		mismatched: map[slim.Labels][]*object{}, earlyReasons: map[slim.Key]string{},
	}
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

	createForbidden = "waits: it is forbidden to create ciliumidentities.cilium.io"

	phaseSuccess = "Succeeded"
	phaseFailed  = "Failed"
)

// upsertPod records the state of a pod. It returns why the pod has no identity, if it has none.
func (t *table) upsertPod(p *slim.Pod) (reason string) {
	key := p.Key()
	was, _ := t.pods.Get(key)
	sp := t.specOf(p)
	reason = t.exclusion(p, was)
	if reason == "" && was != nil && was.template != nil && was.template.spec == sp {
		was.node = p.Spec.NodeName
		return was.template.waitReason()
	}
	t.deletePod(key)
	t.recordEarlyReason(key, reason)
	switch reason {
	case "":
		return t.addPod(key, p.Spec.NodeName, sp).waitReason()
	case unmanagedNode:
		t.parkUnmanaged(p)
	}
	return reason
}

// exclusion is why a pod needs no identity, "" for one that does.
func (t *table) exclusion(p *slim.Pod, was *pod) string {
	switch phase := p.Status.Phase.String(); {
	case p.Spec.HostNetwork:
		return hostNetwork
	case phase == phaseSuccess || phase == phaseFailed:
		return finished
	case !t.isManaged(p.Spec.NodeName, was):
		return unmanagedNode
	}
	return ""
}

func (tmpl *template) waitReason() string {
	switch {
	case !tmpl.namespace.exists && tmpl.set == nil:
		return noNamespace
	case tmpl.set == nil:
		return noLabelKept
	}
	return ""
}

// isManaged reports whether pods on a node are managed. A managed pod stays so: a CiliumNode may be missing for a
// moment.
func (t *table) isManaged(node slim.String, was *pod) bool {
	return node == slim.String{} || t.nodes[node.String()] || was != nil && was.template != nil && was.node == node
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

func (t *table) addPod(key slim.Key, node slim.String, sp spec) *template {
	n := t.ensureNamespace(key.Namespace)
	tmpl := n.templates[sp]
	if tmpl == nil {
		tmpl = &template{spec: sp, namespace: n}
		n.templates[sp] = tmpl
	}
	p := &pod{key.Name, node, tmpl, len(tmpl.pods)}
	tmpl.pods = append(tmpl.pods, p)
	t.pods.Set(key, p)
	if len(tmpl.pods) == 1 {
		t.assignTemplate(tmpl)
	} else if tmpl.set != nil {
		tmpl.set.pods++
	}
	if tmpl.set != nil {
		t.enqueue(tmpl.set)
		if t.observed && tmpl.set.number != 0 {
			t.changed = append(t.changed, key)
		}
	}
	return tmpl
}

// deletePod records that a pod was deleted.
func (t *table) deletePod(key slim.Key) {
	delete(t.earlyReasons, key)
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
	tmpl := p.template
	last := tmpl.pods[len(tmpl.pods)-1]
	tmpl.pods[p.index], last.index = last, p.index
	tmpl.pods[len(tmpl.pods)-1] = nil
	tmpl.pods = tmpl.pods[:len(tmpl.pods)-1]
	if s := tmpl.set; s != nil {
		if t.observed && s.number != 0 {
			t.changed = append(t.changed, key)
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
		if labels.KeepsNamespaceLabel(t.keepsLabel, key) {
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

func (t *table) specOf(p *slim.Pod) spec {
	s := spec{labels: p.Labels, serviceAccount: p.Spec.ServiceAccountName}
	if t.namedPorts {
		s.ports = p.Spec.NamedPorts
	}
	return s
}

// identityLabels returns the labels of the identity of a template's pods.
func (t *table) identityLabels(tmpl *template) slim.Labels {
	return slim.MakeLabels(labels.Pod{
		Cluster: t.cluster, Namespace: tmpl.namespace.name, NamespaceLabels: tmpl.namespace.labels.All(),
		ServiceAccount: tmpl.serviceAccount.String(), Labels: tmpl.labels.All(), NamedPorts: tmpl.namedPorts(),
	}.Identity(t.keepsLabel))
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
	}
	s.pods += pods
	t.updateChoice(s)
}

func (t *table) removePods(s *set, pods int) {
	if s.pods > 0 && s.pods == pods {
		t.used--
	}
	s.pods -= pods
	t.updateChoice(s)
}
