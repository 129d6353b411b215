// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"slices"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// filters are the label filters of agents, one for each default list that a release has.
type filters struct {
	all []*labels.Filter
	of  map[release.Release]filterIndex
}

// filterIndex is the place of a filter in filters.all.
type filterIndex uint8

// makeFilters makes the filters of the entries of a file, nil for the default list, and those of the user.
func makeFilters(file, user []labels.Entry) *filters {
	f := &filters{of: map[release.Release]filterIndex{}}
	if file != nil {
		f.all = []*labels.Filter{labels.NewFileFilter(file, user)}
		return f // all releases have the file's list
	}
	var lists []labels.DefaultList
	for _, r := range release.All() {
		list := labels.DefaultList{ServiceAccount: release.ServiceAccountsInList.In(r), NoTopology: !release.TopologyOfNodes.In(r)}
		i := slices.Index(lists, list)
		if i < 0 {
			i, lists = len(lists), append(lists, list)
			f.all = append(f.all, labels.NewFilter(list, user))
		}
		f.of[r] = filterIndex(i)
	}
	return f
}

// specs are the specs that agents may compute the labels of a pod from. The first is what its agent has, or will look for.
type specs struct {
	all [maxSpecs]spec
	n   int
}

// maxSpecs is more than the number of filters, with named ports and without.
const maxSpecs = 8

func (s *specs) add(sp spec) {
	if s.n < maxSpecs && !slices.Contains(s.all[:s.n], sp) {
		s.all[s.n] = sp
		s.n++
	}
}

// prefer puts a spec first, if it is one of them.
func (s *specs) prefer(sp spec) {
	if i := slices.Index(s.all[:s.n], sp); i > 0 {
		copy(s.all[1:i+1], s.all[:i])
		s.all[0] = sp
	}
}

// specsOf returns the specs of a pod, by the releases of the agents on its node. For a pod on none, or whose agent is not
// known, all releases count that run. was is what is known of the pod, nil for nothing.
func (t *table) specsOf(p *slim.Pod, was *pod) *specs {
	agents, known := t.fleet.On(p.Spec.NodeName)
	settled := known && agents.Single()
	if !known {
		agents = t.fleet.Running()
	}
	all := &t.scratch
	all.n = 0
	for r := range agents.All() {
		t.addSpecs(all, p, r)
	}
	if !settled && was != nil && was.template != nil {
		all.prefer(was.template.spec) // until the next agent is the only one
	}
	return all
}

// addSpecs adds what agents of a release compute. Whether named ports are part of it is decided when an endpoint is made, and
// stays: an endpoint that an older agent made has none, whatever its agent is now. Where it has to be made anew, as in a new
// sandbox, its agent decides.
func (t *table) addSpecs(all *specs, p *slim.Pod, r release.Release) {
	bare := spec{labels: p.Labels, serviceAccount: p.Spec.ServiceAccountName, filter: t.filters.of[r]}
	withPorts := bare
	withPorts.ports = p.Spec.NamedPorts
	made, next := bare, bare
	if release.PortsInIdentities.In(r) {
		made, next = withPorts, withPorts
	}
	if bare != withPorts && (next == withPorts || t.havePorts > 0) {
		if ports, known := t.endpointHasPorts(p.Key()); known && ports {
			made = withPorts
		} else if known {
			made = bare
		}
	}
	all.add(made)
	all.add(next)
}

// endpointHasPorts reports whether the labels of a pod's endpoint have named ports; known is false where there is no endpoint,
// or its identity is not known.
func (t *table) endpointHasPorts(pod slim.Key) (ports, known bool) {
	n, ok := t.numberOfEndpoint(pod)
	if !ok {
		return false, false
	}
	o := t.objects[n]
	if o == nil || o.set == nil {
		return false, false
	}
	return o.set.hasPorts(), true
}

// hasPorts reports whether the labels are those of pods with named ports.
func (s *set) hasPorts() bool {
	_, has := s.labels.Lookup(labels.LabelOfNamedPorts)
	return has
}

// portsWanted reports whether agents run that look for named ports.
func (t *table) portsWanted() bool {
	for r := range t.fleet.Running().All() {
		if release.PortsInIdentities.In(r) {
			return true
		}
	}
	return false
}
