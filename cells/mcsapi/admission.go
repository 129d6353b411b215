// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// admission decides which exports of remote clusters make objects here: a bounded number of each cluster in each namespace. What has
// objects keeps them, whatever the bound is. It is safe for concurrent use.
type admission struct {
	most   int             // 0 for any number
	system map[string]bool // namespaces in which there are none

	mu     sync.Mutex
	places map[string]map[string]*place // by namespace and cluster
	ports  map[slim.Key]map[string]int  // that are left out, by name and cluster
}

// place is what a cluster exports in a namespace.
type place struct {
	admitted map[string]bool // names that make objects here, or have some
	left     map[string]bool // names that are left out
}

// contribution is what a cluster exports under a name.
type contribution struct {
	cluster string
	key     slim.Key
}

func newAdmission(most int, system map[string]bool) *admission {
	return &admission{most: most, system: system, places: map[string]map[string]*place{}, ports: map[slim.Key]map[string]int{}}
}

// admit reports whether the export of a name by a cluster counts here. isHeld says that there are objects of the name; those that had
// some before anything was admitted are found by held.
func (a *admission) admit(of contribution, isHeld bool, held func(cluster, namespace string) []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, name := a.placeOf(of, held), of.key.Name
	isFull := a.system[of.key.Namespace] || a.most > 0 && len(p.admitted) >= a.most
	if !isHeld && !p.admitted[name] && isFull {
		p.left[name] = true
		return false
	}
	p.admitted[name] = true
	delete(p.left, name)
	return true
}

func (a *admission) placeOf(of contribution, held func(cluster, namespace string) []string) *place {
	namespace := of.key.Namespace
	if a.places[namespace] == nil {
		a.places[namespace] = map[string]*place{}
	}
	p := a.places[namespace][of.cluster]
	if p == nil {
		p = &place{admitted: map[string]bool{}, left: map[string]bool{}}
		for _, name := range held(of.cluster, namespace) {
			p.admitted[name] = true
		}
		a.places[namespace][of.cluster] = p
	}
	return p
}

// release has a name count for no cluster but those of which it is not known, or that are admitted already. It returns names that were left
// out, and may fit now.
func (a *admission) release(key slim.Key, keeps func(cluster string) bool) (waiting []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for cluster, p := range a.places[key.Namespace] {
		if keeps(cluster) {
			continue
		}
		delete(p.left, key.Name)
		if delete(p.admitted, key.Name); len(p.admitted) < a.most && !a.system[key.Namespace] {
			waiting = slices.AppendSeq(waiting, maps.Keys(p.left))
		}
		if len(p.admitted)+len(p.left) == 0 {
			delete(a.places[key.Namespace], cluster)
		}
	}
	if len(a.places[key.Namespace]) == 0 {
		delete(a.places, key.Namespace)
	}
	return waiting
}

// leavePorts records how many ports are left out of the exports of a name, by cluster.
func (a *admission) leavePorts(key slim.Key, byCluster map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ports[key] = byCluster; len(byCluster) == 0 {
		delete(a.ports, key)
	}
}

// leftOut is what is left out: how many exports by cluster, and a text about the largest few, "" for nothing.
func (a *admission) leftOut() (byCluster map[string]int, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	byCluster = map[string]int{}
	var parts []leftPart
	for namespace, places := range a.places {
		for cluster, p := range places {
			if n := len(p.left); n > 0 {
				byCluster[cluster] += n
				parts = append(parts, leftPart{n, fmt.Sprintf("%d services of cluster %s in the namespace %s (%s)", n, cluster, namespace, a.why(namespace))})
			}
		}
	}
	for key, ports := range a.ports {
		for cluster, n := range ports {
			parts = append(parts, leftPart{n, fmt.Sprintf("%d ports of %s of cluster %s (--clustermesh-mcs-api-max-ports, or no Service can have them)", n, key, cluster)})
		}
	}
	return byCluster, textOf(parts)
}

// leftPart is a number of things that are left out, and what they are.
type leftPart struct {
	n    int
	text string
}

// textOf names the largest parts.
func textOf(parts []leftPart) string {
	const most = 3
	slices.SortFunc(parts, func(a, b leftPart) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.text, b.text)) })
	texts := []string{}
	for _, p := range parts[:min(len(parts), most)] {
		texts = append(texts, p.text)
	}
	if more := len(parts) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

func (a *admission) why(namespace string) string {
	if a.system[namespace] {
		return "of the system: --clustermesh-mcs-api-system-namespaces"
	}
	return "--clustermesh-mcs-api-max-imports"
}
