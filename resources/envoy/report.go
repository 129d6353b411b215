// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging"
	"github.com/skep-operator/skep/runtime/printable"
)

// Notice is something that the user of an object is to know.
type Notice struct {
	Reason  string // of the Event, in CamelCase
	Message string
	// Degrades says that the object is not served as it asks for: health shows it.
	Degrades bool
	// IsServed says that the object is served as it asks for, and that it is told what that means.
	IsServed bool
	// Others is how many findings there are beside it that have no Notice of their own.
	Others int
	// ByOthers says that objects of others cause it. Its lines and Events, which are of the type Normal, leave those of the object's own findings alone.
	ByOthers bool
}

// Reports tell users what is wrong with their objects: each Notice once, as long as it holds, in the log and by an Event.
// Health shows those that degrade. It is safe for concurrent use.
type Reports struct {
	events *k8s.Events
	log    *slog.Logger
	health health.Reporter
	kind   string
	lines  logging.Quota[slim.Key]
	others logging.Quota[slim.Key] // of lines that others cause

	mu       sync.Mutex
	all      map[slim.Key]map[string][]Notice // by part
	degraded map[slim.Key]string              // what health shows of an object
}

// NewReports returns Reports about objects of a kind. Health is a child of its own.
func NewReports(kind string, events *k8s.Events, log *slog.Logger, h health.Reporter) *Reports {
	return &Reports{events: events, log: log, health: h.Child("objects"), kind: kind, all: map[slim.Key]map[string][]Notice{}, degraded: map[slim.Key]string{}}
}

// Set replaces the notices about an object that a part of the duty has: each part replaces its own.
func (r *Reports) Set(part string, about corev1.ObjectReference, notices ...Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := slim.Key{Namespace: about.Namespace, Name: about.Name}
	notices = bounded(notices)
	was := r.all[key][part]
	if len(was) == 0 && len(notices) == 0 {
		return
	}
	for _, n := range notices {
		// An object may have many parts, such as one for each Secret: those of the first ones are told.
		if slices.Contains(was, n) || len(was) == 0 && len(r.all[key]) >= maxParts {
			continue
		}
		r.report(key, about, n)
	}
	if r.all[key] == nil {
		r.all[key] = map[string][]Notice{}
	}
	if delete(r.all[key], part); len(notices) > 0 {
		r.all[key][part] = notices
	}
	r.update(key)
}

// report writes a line of the log and makes an Event, within the bounds of the object.
func (r *Reports) report(key slim.Key, about corev1.ObjectReference, n Notice) {
	text, lines, event := "object is not served as it asks for", &r.lines, r.events.Warning
	switch {
	case n.ByOthers:
		text, lines, event = "objects of others ask for what an object has", &r.others, r.events.Normal
	case n.IsServed:
		text = "object is served with a warning"
	}
	if skipped, ok := lines.Use(key, time.Now()); ok {
		r.log.Warn(text, append([]any{"kind", r.kind, "object", key.String(), "reason", n.Reason, "detail", n.Message}, logging.Skipped(skipped)...)...)
	}
	event(about, n.Reason, n.Message)
}

// maxParts is how many parts of an object have lines and Events of their own.
const maxParts = 20

// maxNotices is how many notices an object has at most of a part: each is a line of the log and an Event (ENV-34).
const maxNotices = 5

// bounded are the first notices, and how many more there are, and the same of those that others cause.
func bounded(all []Notice) []Notice {
	isByOthers := func(n Notice) bool { return n.ByOthers }
	own := slices.DeleteFunc(slices.Clone(all), isByOthers)
	byOthers := slices.DeleteFunc(slices.Clone(all), func(n Notice) bool { return !isByOthers(n) })
	return append(boundedOnes(own), boundedOnes(byOthers)...)
}

// boundedOnes are the first of such notices. Their messages may quote texts of others of any length: they have an end.
func boundedOnes(all []Notice) []Notice {
	for i := range all {
		all[i].Message = printable.Cut(all[i].Message, maxDetail)
	}
	others := max(0, len(all)-maxNotices)
	for _, n := range all {
		others += n.Others
	}
	if others == 0 {
		return all
	}
	last := min(maxNotices, len(all)) - 1
	more := all[last]
	for _, n := range all[last:] {
		more.Degrades = more.Degrades || n.Degrades
	}
	more.Message, more.Others = fmt.Sprintf("%s; and %d more such findings", more.Message, others), 0
	return append(slices.Clone(all[:last]), more)
}

// maxDetail is the length of the message of a notice, in bytes.
const maxDetail = 1000

// Forget removes an object.
func (r *Reports) Forget(key slim.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all[key]) == 0 {
		return
	}
	delete(r.all, key)
	r.update(key)
}

// update updates health after the notices about an object have changed. The caller has the lock.
func (r *Reports) update(key slim.Key) {
	text, first := "", ""
	for part, notices := range r.all[key] {
		i := slices.IndexFunc(notices, func(n Notice) bool { return n.Degrades })
		if i >= 0 && (text == "" || part < first) {
			text, first = notices[i].Message, part
		}
	}
	if text == r.degraded[key] && text == "" {
		return
	}
	if r.degraded[key] = text; text == "" {
		delete(r.degraded, key)
	}
	if len(r.degraded) == 0 {
		r.health.OK("")
		return
	}
	of := slices.MinFunc(slices.Collect(maps.Keys(r.degraded)), func(a, b slim.Key) int { return cmp.Compare(a.String(), b.String()) })
	shown := fmt.Sprintf("%s %s: %s", r.kind, of, r.degraded[of])
	if len(r.degraded) > 1 {
		shown += fmt.Sprintf("; and %d more", len(r.degraded)-1)
	}
	r.health.Degraded(shown, nil)
}
