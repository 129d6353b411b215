// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"iter"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// agentContainer is the container of an agent in its pod, and chartLabel the label that charts give to the pod.
const (
	agentContainer = "cilium-agent"
	chartLabel     = "helm.sh/chart"
	chartPrefix    = "cilium-"
)

// Fleet is which releases of Cilium run on which nodes, as the pods of the agents tell. It is fed by its user with the changes
// of [Pods], and is not safe for concurrent use.
type Fleet struct {
	configured release.Configured
	nodes      map[slim.String][]agent
	nodeOf     map[slim.Key]slim.String // by pod of an agent
	running    map[release.Release]int  // pods
}

// agent is a pod of an agent on a node.
type agent struct {
	pod     slim.Key
	release release.Release
}

// NewFleet returns a fleet without agents. configured is the release of agents that do not tell theirs, and of all where an
// option says so.
func NewFleet(configured release.Configured) *Fleet {
	return &Fleet{configured: configured, nodes: map[slim.String][]agent{}, nodeOf: map[slim.Key]slim.String{}, running: map[release.Release]int{}}
}

// Apply records a change of an agent's pod. It returns the nodes whose releases are others than before.
func (f *Fleet) Apply(ch stream.Change[Pod]) (changed []slim.String) {
	before, known := f.nodeOf[ch.Key]
	var wasBefore, wasNow release.Set
	now := slim.String{}
	if ch.Kind == stream.Upsert {
		now = ch.Object.Spec.NodeName
	}
	if known {
		wasBefore, _ = f.On(before)
	}
	wasNow, _ = f.On(now)
	f.remove(ch.Key)
	if ch.Kind == stream.Upsert {
		f.add(ch.Key, ch.Object)
	}
	if is, _ := f.On(before); known && is != wasBefore {
		changed = append(changed, before)
	}
	if is, _ := f.On(now); is != wasNow && (!known || before != now) {
		changed = append(changed, now)
	}
	return changed
}

func (f *Fleet) add(key slim.Key, p *Pod) {
	if p.Spec.NodeName == (slim.String{}) {
		return
	}
	r := p.ReleaseOr(f.configured.Release)
	f.nodeOf[key] = p.Spec.NodeName
	f.nodes[p.Spec.NodeName] = append(f.nodes[p.Spec.NodeName], agent{key, r})
	f.running[r]++
}

func (f *Fleet) remove(key slim.Key) {
	node, known := f.nodeOf[key]
	if !known {
		return
	}
	delete(f.nodeOf, key)
	all := f.nodes[node]
	i := slices.IndexFunc(all, func(a agent) bool { return a.pod == key })
	r := all[i].release
	if f.nodes[node] = slices.Delete(all, i, i+1); len(f.nodes[node]) == 0 {
		delete(f.nodes, node)
	}
	if f.running[r]--; f.running[r] == 0 {
		delete(f.running, r)
	}
}

// On returns the releases of the agents on a node: one, or two while one agent takes over from another. It is false where no
// agent is known.
func (f *Fleet) On(node slim.String) (release.Set, bool) {
	var on release.Set
	for _, a := range f.nodes[node] {
		on = on.Union(release.SetOf(a.release))
	}
	if f.configured.Forced && !on.Empty() {
		on = release.SetOf(f.configured.Release)
	}
	return on, !on.Empty()
}

// Running returns the releases that run on any node; where no agent is known, that of the configuration.
func (f *Fleet) Running() release.Set {
	var all release.Set
	for r := range f.running {
		all = all.Union(release.SetOf(r))
	}
	if all.Empty() || f.configured.Forced {
		return release.SetOf(f.configured.Release)
	}
	return all
}

// Release returns the release of the agent: that of the image of its container, or else of its chart. tells is false if
// neither has a version.
func (p *Pod) Release() (r release.Release, tells bool) {
	v := p.version()
	return v.Release, v.text != ""
}

// version is what a pod says of the release of its agent.
type version struct {
	release.Release
	text    string // as the pod has it, "" for none
	exact   bool   // it is one of a release that is served, and not just nearest to that
	knownBy string // what has it, for people
}

func (v version) isServed() bool { return v.exact || v.text == "" }

// version returns what the pod says. An image counts before a chart, unless the chart alone has the version of a release that is served.
func (p *Pod) version() (nearest version) {
	chart, _ := p.Labels.Lookup(chartLabel)
	for _, v := range []version{
		{text: tagOf(p.Spec.Images.Of(agentContainer)), knownBy: "the image of the container " + agentContainer},
		{text: strings.TrimPrefix(chart, chartPrefix), knownBy: "the label " + chartLabel},
	} {
		var err error
		v.Release, v.exact, err = release.Parse(v.text)
		if err == nil && v.exact {
			return v
		}
		if err == nil && nearest.text == "" {
			nearest = v
		}
	}
	return nearest
}

// Running returns the releases of agents by their pods. configured is as in [NewFleet].
func Running(pods iter.Seq[*Pod], configured release.Configured) (s release.Set) {
	if configured.Forced {
		return release.SetOf(configured.Release)
	}
	for p := range pods {
		s = s.Union(release.SetOf(p.ReleaseOr(configured.Release)))
	}
	if s.Empty() {
		s = release.SetOf(configured.Release)
	}
	return s
}

// ReleasesOn returns the releases of the agents on a node; where none is known, that of the configuration. configured is as in [NewFleet].
func ReleasesOn(pods *stream.Store[Pod], node string, configured release.Configured) release.Set {
	return Running(stream.ByIndex(pods, byNode, slim.MakeString(node)), configured)
}

// ReleaseOr is Release, or another one of an agent that does not tell its own.
func (p *Pod) ReleaseOr(otherwise release.Release) release.Release {
	if r, tells := p.Release(); tells {
		return r
	}
	return otherwise
}

// tagOf returns the tag of an image, "" for none.
func tagOf(image string) string {
	name, _, _ := strings.Cut(image, "@") // without the digest
	_, tag, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ":")
	return tag
}
