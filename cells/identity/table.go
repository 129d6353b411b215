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

// table is who there is: pods by what their labels depend upon, identities, and
// the sets of labels that connect the two. plan.go decides about them. It is not
// safe for concurrent use.
type table struct {
	cluster string
	keeps   func(source, key string) bool
	byPorts bool // named ports make identities, too
	numbers *numbers
	random  func(of int) int
	// carried reports whether an endpoint has an identity with this number,
	// whatever the labels of pods are.
	carried func(identity.Number) bool
	now     time.Time // as the caller says

	begun      bool
	pods       slim.KeyMap[*pod]
	abroad     map[slim.String]map[slim.Key]*slim.Pod // by node without CiliumNode
	nodes      map[string]bool
	namespaces map[string]*namespace
	sets       map[slim.Labels]*set
	objects    map[identity.Number]*object
	owners     map[identity.Number]*set // by the number that a set has chosen
	starved    map[*set]bool            // without a number because none is free
	unseen     map[identity.Number]slim.Revision

	used       int // sets with pods
	duplicates int // sets with more than one object

	watched bool       // changes of answers are noted
	changed []slim.Key // pods of which the answer changed
	touched []*set     // to be looked at
}

// pod is a pod that has an identity, or waits for its namespace, or is abroad.
type pod struct {
	name string
	node slim.String
	from *template // nil while it is abroad
	at   int       // in from.pods
}

// key is that of a pod that is not abroad.
func (p *pod) key() slim.Key { return slim.Key{Namespace: p.from.of.name, Name: p.name} }

// namespace is a namespace as far as identities depend upon it.
type namespace struct {
	name      string
	known     bool
	labels    slim.Labels // those that are part of identities
	templates map[spec]*template
}

// spec is what all pods of a template have in common.
type spec struct {
	labels  slim.Labels
	account slim.String
	ports   slim.NamedPorts // none where they make no identities
}

// template is the pods of a namespace that have the same spec. Their set is computed once.
type template struct {
	spec
	of   *namespace
	set  *set // nil while the namespace is not known, and if no label counts
	at   int  // in set.templates
	pods []*pod
}

// set is a set of labels, with the pods and the objects that have them.
type set struct {
	labels    slim.Labels
	templates []*template
	pods      int
	objects   []*object // the oldest first

	number  identity.Number // chosen; 0 is none
	exists  bool            // the object of number is there
	drawn   bool            // it never was
	tried   bool            // a request to make it failed, and may yet take effect
	sending bool            // a request is under way
	queued  time.Time       // since when it waits to be looked at
}

// object is a CiliumIdentity with a number of the cluster.
type object struct {
	number   identity.Number
	of       *set // nil without labels
	created  slim.Time
	revision slim.Revision
}

func newTable(cluster string, in identity.Range, keeps func(source, key string) bool, random func(of int) int) *table {
	return &table{
		cluster: cluster, keeps: remembered(keeps), numbers: newNumbers(in), random: random,
		carried: func(identity.Number) bool { return false },
		abroad:  map[slim.String]map[slim.Key]*slim.Pod{}, nodes: map[string]bool{},
		namespaces: map[string]*namespace{}, sets: map[slim.Labels]*set{}, objects: map[identity.Number]*object{},
		owners: map[identity.Number]*set{}, starved: map[*set]bool{}, unseen: map[identity.Number]slim.Revision{},
	}
}

// remembered keeps the answers of a filter, which are dear, for as many keys as
// clusters have.
func remembered(keeps func(source, key string) bool) func(source, key string) bool {
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

// take returns what is to be looked at and told since it was called last.
func (t *table) take() (touched []*set, changed []slim.Key) {
	touched, changed = t.touched, t.changed
	t.touched, t.changed = nil, nil
	return touched, changed
}

func (t *table) touch(s *set) {
	if !t.begun || s == nil {
		return
	}
	if s.queued.IsZero() {
		s.queued = t.now
	}
	t.touched = append(t.touched, s)
}

// tell notes that the answer about the pods of a set changed.
func (t *table) tell(s *set) {
	if !t.watched {
		return
	}
	for _, from := range s.templates {
		for _, p := range from.pods {
			t.changed = append(t.changed, p.key())
		}
	}
}

// Why pods have no identity, or wait for one.
const (
	hostNetwork  = "none: the pod is in the network of its node"
	finished     = "none: the pod has finished"
	foreignNode  = "none: the pod's node has no CiliumNode"
	noNamespace  = "waits: the pod's namespace is not known yet"
	noLabelKept  = "none: the filter keeps none of the pod's labels"
	phaseSuccess = "Succeeded"
	phaseFailed  = "Failed"
)

// seePod takes note of a pod as it is now. It returns why the pod has no
// identity, if it has none.
func (t *table) seePod(p *slim.Pod) (why string) {
	key := p.Key()
	was, _ := t.pods.Get(key)
	what := t.spec(p)
	why = t.none(p, was)
	if why == "" && was != nil && was.from != nil && was.from.spec == what {
		was.node = p.Spec.NodeName
		return was.from.why()
	}
	t.forgetPod(key)
	switch why {
	case "":
		return t.addPod(key, p.Spec.NodeName, what).why()
	case foreignNode:
		t.sendAbroad(p)
	}
	return why
}

// none is why a pod does not count, "" for one that does.
func (t *table) none(p *slim.Pod, was *pod) string {
	switch phase := p.Status.Phase.String(); {
	case p.Spec.HostNetwork:
		return hostNetwork
	case phase == phaseSuccess || phase == phaseFailed:
		return finished
	case !t.isHere(p.Spec.NodeName, was):
		return foreignNode
	}
	return ""
}

func (from *template) why() string {
	switch {
	case !from.of.known && from.set == nil:
		return noNamespace
	case from.set == nil:
		return noLabelKept
	}
	return ""
}

// isHere reports whether pods on a node are ours. One that was ours there stays
// so: a CiliumNode may go for a moment.
func (t *table) isHere(node slim.String, was *pod) bool {
	return node == slim.String{} || t.nodes[node.String()] || was != nil && was.from != nil && was.node == node
}

func (t *table) sendAbroad(p *slim.Pod) {
	there := t.abroad[p.Spec.NodeName]
	if there == nil {
		there = map[slim.Key]*slim.Pod{}
		t.abroad[p.Spec.NodeName] = there
	}
	there[p.Key()] = p
	t.pods.Set(p.Key(), &pod{name: p.Name, node: p.Spec.NodeName})
}

func (t *table) addPod(key slim.Key, node slim.String, what spec) *template {
	n := t.namespace(key.Namespace)
	from := n.templates[what]
	if from == nil {
		from = &template{spec: what, of: n}
		n.templates[what] = from
	}
	p := &pod{key.Name, node, from, len(from.pods)}
	from.pods = append(from.pods, p)
	t.pods.Set(key, p)
	if len(from.pods) == 1 {
		t.assign(from)
	} else if from.set != nil {
		from.set.pods++
	}
	if from.set != nil {
		t.touch(from.set)
		if t.watched && from.set.number != 0 {
			t.changed = append(t.changed, key)
		}
	}
	return from
}

// forgetPod takes note that a pod is gone.
func (t *table) forgetPod(key slim.Key) {
	p, _ := t.pods.Get(key)
	if p == nil {
		return
	}
	t.pods.Delete(key)
	if p.from == nil {
		delete(t.abroad[p.node], key)
		if len(t.abroad[p.node]) == 0 {
			delete(t.abroad, p.node)
		}
		return
	}
	from := p.from
	last := from.pods[len(from.pods)-1]
	from.pods[p.at], last.at = last, p.at
	from.pods[len(from.pods)-1] = nil
	from.pods = from.pods[:len(from.pods)-1]
	if s := from.set; s != nil {
		if t.watched && s.number != 0 {
			t.changed = append(t.changed, key)
		}
		t.lose(s, 1)
	}
	if len(from.pods) == 0 {
		t.leave(from)
		delete(from.of.templates, from.spec)
		t.dropNamespace(from.of)
	}
}

func (t *table) namespace(name string) *namespace {
	n := t.namespaces[name]
	if n == nil {
		n = &namespace{name: name, templates: map[spec]*template{}}
		t.namespaces[name] = n
	}
	return n
}

func (t *table) dropNamespace(n *namespace) {
	if !n.known && len(n.templates) == 0 {
		delete(t.namespaces, n.name)
	}
}

// seeNamespace takes note of a namespace. It costs nothing unless those of its
// labels changed that count.
func (t *table) seeNamespace(o *slim.Namespace) {
	kept := map[string]string{}
	for key, value := range o.Labels.All() {
		if labels.KeepsNamespaceLabel(t.keeps, key) {
			kept[key] = value
		}
	}
	n, now := t.namespace(o.Name), slim.MakeLabels(kept)
	if n.known && n.labels == now {
		return
	}
	n.known, n.labels = true, now
	for _, from := range n.templates {
		t.assign(from)
		t.touch(from.set)
	}
}

// forgetNamespace takes note that a namespace is gone. Its pods keep what they
// have; new ones wait until it is there again.
func (t *table) forgetNamespace(name string) {
	if n := t.namespaces[name]; n != nil {
		n.known = false
		t.dropNamespace(n)
	}
}

func (t *table) seeNode(name string) {
	t.nodes[name] = true
	for _, p := range t.abroad[slim.MakeString(name)] {
		t.seePod(p)
	}
}

func (t *table) forgetNode(name string) { delete(t.nodes, name) }

// assign computes the set of a template's pods, and moves them there.
func (t *table) assign(from *template) {
	var to *set
	if from.of.known {
		to = t.set(t.compute(from))
	}
	if to == from.set {
		return
	}
	t.leave(from)
	t.join(from, to)
}

func (t *table) spec(p *slim.Pod) spec {
	s := spec{labels: p.Labels, account: p.Spec.ServiceAccountName}
	if t.byPorts {
		s.ports = p.Spec.NamedPorts
	}
	return s
}

// compute returns the labels of the identity of a template's pods.
func (t *table) compute(from *template) slim.Labels {
	return slim.MakeLabels(labels.Pod{
		Cluster: t.cluster, Namespace: from.of.name, NamespaceLabels: from.of.labels.All(),
		ServiceAccount: from.account.String(), Labels: from.labels.All(), NamedPorts: from.namedPorts(),
	}.Identity(t.keeps))
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

// set returns the set of labels, nil for none.
func (t *table) set(of slim.Labels) *set {
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

func (t *table) join(from *template, s *set) {
	from.set = s
	if s == nil {
		return
	}
	from.at = len(s.templates)
	s.templates = append(s.templates, from)
	t.gain(s, len(from.pods))
	t.tellTemplate(from)
}

// leave takes a template out of its set. The pods that it still has leave, too.
func (t *table) leave(from *template) {
	s := from.set
	if s == nil {
		return
	}
	last := s.templates[len(s.templates)-1]
	s.templates[from.at], last.at = last, from.at
	s.templates[len(s.templates)-1] = nil
	s.templates = s.templates[:len(s.templates)-1]
	from.set = nil
	t.tellTemplate(from)
	t.lose(s, len(from.pods))
}

func (t *table) tellTemplate(from *template) {
	if !t.watched {
		return
	}
	for _, p := range from.pods {
		t.changed = append(t.changed, p.key())
	}
}

func (t *table) gain(s *set, pods int) {
	if s.pods == 0 && pods > 0 {
		t.used++
	}
	s.pods += pods
	t.settle(s)
}

func (t *table) lose(s *set, pods int) {
	if s.pods > 0 && s.pods == pods {
		t.used--
	}
	s.pods -= pods
	t.settle(s)
}
