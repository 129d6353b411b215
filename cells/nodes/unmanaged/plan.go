// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package unmanaged

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	// leastAge is the time that an agent has for the CiliumEndpoint of a pod.
	leastAge = 30 * time.Second
	// pause is the least time between two restarts of pods of one name, and before the restart of a pod that took
	// the place of a restarted one.
	pause = 5 * time.Minute
	// memory is how long a restart is remembered.
	memory = 10 * time.Minute
)

// pod is what this duty reads of a pod.
type pod struct {
	podMeta `json:"metadata"`
	Spec    podSpec   `json:"spec"`
	Status  podStatus `json:"status"`
}

type podMeta struct {
	slim.Meta
	Controller        slim.Owner `json:"ownerReferences"`
	DeletionTimestamp slim.Time  `json:"deletionTimestamp"`
}

type podSpec struct {
	NodeName    slim.String `json:"nodeName"`
	HostNetwork bool        `json:"hostNetwork"`
}

type podStatus struct {
	StartTime slim.Time  `json:"startTime"`
	Ready     slim.Ready `json:"conditions"`
}

// started reports whether the pod has run for so long that it should have a CiliumEndpoint.
func (p *pod) started(now time.Time) bool {
	return !p.Status.StartTime.IsZero() && now.Sub(p.Status.StartTime.Time()) > leastAge
}

// workload identifies the controller of pods within a namespace.
type workload struct {
	namespace slim.String
	owner     slim.Owner
}

func workloadOf(p *pod) workload { return workload{p.Namespace, p.Controller} }

// restarts are those of the last minutes.
type restarts struct {
	pods      map[slim.Key]time.Time
	workloads map[workload][]time.Time
}

func newRestarts() restarts {
	return restarts{pods: map[slim.Key]time.Time{}, workloads: map[workload][]time.Time{}}
}

func (r restarts) add(p *pod, at time.Time) {
	r.pods[p.Key()] = at
	if !p.Controller.IsZero() {
		r.workloads[workloadOf(p)] = append(r.workloads[workloadOf(p)], at)
	}
}

// expire forgets what is too long ago.
func (r restarts) expire(now time.Time) {
	past := func(at time.Time) bool { return now.Sub(at) >= memory }
	maps.DeleteFunc(r.pods, func(_ slim.Key, at time.Time) bool { return past(at) })
	for w, all := range r.workloads {
		if all = slices.DeleteFunc(all, past); len(all) == 0 {
			delete(r.workloads, w)
		} else {
			r.workloads[w] = all
		}
	}
}

// recent reports whether the pod, or the one whose place it took, was restarted just now: another restart would not
// help, and a third.
func (r restarts) recent(p *pod, now time.Time) bool {
	if at, ok := r.pods[p.Key()]; ok && now.Sub(at) < pause {
		return true
	}
	started := p.Status.StartTime.Time() // in whole seconds
	return slices.ContainsFunc(r.workloads[workloadOf(p)], func(at time.Time) bool {
		return now.Sub(at) < pause && !started.Before(at.Truncate(time.Second))
	})
}

// facts are what decides about a pod besides itself.
type facts struct {
	now      time.Time
	managed  func(*pod) bool   // it has a CiliumEndpoint
	unserved func(*pod) string // why its node can create none, "" if it can
	restarts restarts
	// oneAtATime has a pass restart one pod, the oldest, in place of one of each namespace.
	oneAtATime bool
}

// findings are the unmanaged ones among all pods.
type findings struct {
	unmanaged int
	due       [][]*pod       // to be restarted, in their order: one of each group in a pass, which is a namespace
	spared    map[string]int // the others, by the reason
}

// classify judges all pods.
func classify(all iter.Seq[*pod], f facts) findings {
	s := findings{spared: map[string]int{}}
	var due []*pod
	ready := map[workload]int{}
	for p := range all {
		if bool(p.Status.Ready) && !p.Controller.IsZero() {
			ready[workloadOf(p)]++
		}
		if p.Spec.HostNetwork || !p.DeletionTimestamp.IsZero() || !p.started(f.now) || f.managed(p) {
			continue
		}
		s.unmanaged++
		switch reason := f.unserved(p); {
		case reason != "":
			s.spared[reason]++
		case f.restarts.recent(p, f.now):
			s.spared["restarted less than 5 min ago"]++
		default:
			due = append(due, p)
		}
	}
	if f.oneAtATime {
		slices.SortFunc(due, compareAge)
		s.due = [][]*pod{due}
		return s
	}
	slices.SortFunc(due, func(a, b *pod) int { return compare(a, b, ready) })
	s.due = byNamespace(due)
	return s
}

// byNamespace divides pods by their namespaces, that of the system first: the pods of one namespace do not keep those of another
// waiting, and its own DNS is what a cluster needs first.
func byNamespace(pods []*pod) (all [][]*pod) {
	place := map[slim.String]int{}
	for _, p := range pods {
		i, known := place[p.Namespace]
		if !known {
			i = len(all)
			place[p.Namespace] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], p)
	}
	isSystem := func(of []*pod) int {
		if of[0].Namespace.String() == metav1.NamespaceSystem {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b []*pod) int { return cmp.Compare(isSystem(a), isSystem(b)) })
	return all
}

// compare puts pods first whose workload has another ready pod, and then older ones.
func compare(a, b *pod, ready map[workload]int) int {
	alone := func(p *pod) int {
		others := ready[workloadOf(p)]
		if p.Status.Ready {
			others--
		}
		if others > 0 {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(alone(a), alone(b)), compareAge(a, b))
}

// compareAge puts older pods first.
func compareAge(a, b *pod) int {
	return cmp.Or(cmp.Compare(a.Status.StartTime, b.Status.StartTime), cmp.Compare(a.Namespace.String(), b.Namespace.String()), cmp.Compare(a.Name, b.Name))
}

// String is why pods are not restarted, "" for none.
func (s findings) String() string {
	var texts []string
	for reason, n := range s.spared {
		texts = append(texts, fmt.Sprintf("%d %s", n, reason))
	}
	if len(texts) == 0 {
		return ""
	}
	slices.Sort(texts)
	spared := 0
	for _, n := range s.spared {
		spared += n
	}
	return fmt.Sprintf("%d unmanaged pods are not restarted: %v", spared, texts)
}
