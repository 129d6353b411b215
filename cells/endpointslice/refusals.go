// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// refusals reports what of the status of pods does not count, once for each change. It keeps those pods alone. It is safe for concurrent use.
type refusals struct {
	events *k8s.Events
	log    *slog.Logger
	mu     sync.Mutex
	known  map[slim.Key]refusal
	lines  int // in the log, of all pods
}

type refusal struct {
	text  string // "" after it was put right
	lines int    // in the log
}

// mostLines is how many lines of the log a pod gets until it is gone, and mostOfAll is how many all get: a CiliumNode without the address of its host concerns each pod on it. Events have a
// brake of their own.
const mostLines, mostOfAll = 5, 100

func newRefusals(events *k8s.Events, log *slog.Logger) *refusals {
	return &refusals{events: events, log: log, known: map[slim.Key]refusal{}}
}

// forget is for a pod that is gone.
func (r *refusals) forget(key slim.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, key)
}

// set records what does not count of a pod's status, "" for nothing.
func (r *refusals) set(p *slim.Pod, text string) {
	isNew, logs, isLast := r.record(p.Key(), text)
	if !isNew {
		return
	}
	r.events.Warning(corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace.String(), Name: p.Name, UID: p.UID.API(),
	}, "PodAddressRefused", "Left out of its CiliumEndpointSlice is what its status should not have: "+text)
	if logs {
		r.log.Warn("addresses in the status of a pod do not count", "pod", p.Key().String(), "refused", text)
	}
	if isLast {
		r.log.Warn("addresses in the status of many pods do not count: further ones have an Event alone", "reason", "PodAddressRefused")
	}
}

// record reports whether there is something that is new, whether the log is to have it, and whether it is the last one there.
func (r *refusals) record(key slim.Key, text string) (isNew, logs, isLast bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.known[key]
	if of.text == text {
		return false, false, false
	}
	of.text = text
	if logs = text != "" && of.lines < mostLines && r.lines < mostOfAll; logs {
		of.lines++
		r.lines++
	}
	r.known[key] = of
	return text != "", logs, logs && r.lines == mostOfAll
}
