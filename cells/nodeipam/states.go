// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/metrics"
)

// state is whether a Service has addresses of nodes, and why not.
type state struct {
	name    string // label of the metric
	message string // "" if it has them
}

const (
	served          = "served"
	noNode          = "no_node"
	portTaken       = "port_taken"
	invalidSelector = "invalid_selector"
)

func selectorError(err error) state {
	return state{invalidSelector, fmt.Sprintf("the annotation %s is not a label selector, addresses stay as they are: %v", selectorAnnotation, err)}
}

// stateOf is the state of a Service with these addresses. why is why it gets no others of its nodes.
func stateOf(ips []string, why denial) state {
	switch {
	case why.message != "":
		return state{portTaken, why.message}
	case len(ips) > 0:
		return state{name: served}
	}
	return state{noNode, "no node is eligible: none that matches the Service has an address of its families"}
}

// eventReason is the reason of the Event about a Service without addresses.
func (s state) eventReason() string {
	switch s.name {
	case invalidSelector:
		return "InvalidNodeSelector"
	case portTaken:
		return "PortOfAnother"
	}
	return "NoEligibleNode"
}

// states are those of all Services that are served. It is safe for concurrent use.
type states struct {
	params

	mu      sync.Mutex
	all     map[slim.Key]state
	counted *metrics.States[slim.Key]
	invalid map[slim.Key]string // why node selectors are invalid
	lines   logging.Quota[slim.Key]
}

func newStates(p params) *states {
	return &states{params: p, all: map[slim.Key]state{}, invalid: map[slim.Key]string{},
		counted: metrics.NewStates[slim.Key](p.Metrics.Services, served, noNode, portTaken, invalidSelector)}
}

// set reports the state of a Service, if it is a new one.
func (t *states) set(s *service, now state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := s.Key()
	if was, known := t.all[key]; known && was == now {
		return
	}
	t.forget(key)
	t.all[key] = now
	t.counted.Set(key, now.name)
	if now.name == invalidSelector {
		t.invalid[key] = now.message
		t.reportInvalid()
	}
	if now.message != "" {
		if skipped, ok := t.lines.Use(key, time.Now()); ok {
			t.Log.Info("no addresses of nodes for Service", append([]any{"service", key.String(), "reason", now.message}, logging.Skipped(skipped)...)...)
		}
		t.Events.Warning(corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name, UID: s.UID.API(),
		}, now.eventReason(), now.message)
	}
}

// remove forgets a Service that is not served any more.
func (t *states) remove(key slim.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(key)
	t.counted.Set(key, "")
}

// forget is called with the lock held.
func (t *states) forget(key slim.Key) {
	was, known := t.all[key]
	if !known {
		return
	}
	delete(t.all, key)
	if was.name == invalidSelector {
		delete(t.invalid, key)
		t.reportInvalid()
	}
}

// reportInvalid updates health. The caller has the lock.
func (t *states) reportInvalid() {
	part := t.Health.Child("selectors")
	if len(t.invalid) == 0 {
		part.OK("")
		return
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(t.invalid)), func(a, b slim.Key) int { return cmp.Compare(a.String(), b.String()) })
	text := fmt.Sprintf("Service %s: %s", first, t.invalid[first])
	if len(t.invalid) > 1 {
		text += fmt.Sprintf("; and %d more", len(t.invalid)-1)
	}
	part.Degraded(text, nil)
}
