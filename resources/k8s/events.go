// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/skep-operator/skep/resources/builtin"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/leading"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/printable"
)

// Events makes Kubernetes Events about objects, for people who describe them. It
// belongs to one module, and is safe for concurrent use. A nil Events makes none.
//
//   - An Event is made only by a module of the leader's term, while that lasts,
//     where the role is known to allow it, and not in a plan. Those from before
//     the API server has told what the role allows are made then.
//   - What explain tells of the object has it, also where the role does not allow it.
//   - Recording one never waits and never fails; it may be lost.
//   - Repetitions are counted on the existing Event, and an object that has very
//     many gets no more for a while.
type Events struct {
	scope       cell.ModuleInfo
	client      Client
	writer      *writer // nil: no Events
	permissions *Permissions
	election    leading.Election // nil: the lease is unknown
	history     *explain.History // nil: not recorded

	start    sync.Once
	recorder record.EventRecorder // nil until the first Event, or if there cannot be one
}

type eventsParams struct {
	cell.In

	Transport   *guardedTransport
	Client      Client
	Permissions *Permissions
	Election    leading.Election `optional:"true"`
}

func newEvents(s cell.ModuleInfo, p eventsParams) *Events {
	e := &Events{scope: s, client: p.Client, permissions: p.Permissions, election: p.Election, history: p.Transport.history}
	if s.Term != "" && p.Transport.plan == nil {
		e.writer = p.Transport.term.Load()
	}
	return e
}

var events = corev1.SchemeGroupVersion.WithResource("events")

// EventRBAC are the permissions of a module that makes Events. It does without
// them where the role has none.
func EventRBAC() cell.Cell { return OptionalRBAC(Allow("create,patch", events.GroupResource())) }

// Warning makes an Event of type Warning about an object, of which at least kind,
// apiVersion and name are set. The reason is one word in CamelCase, which tools
// match on. Events about objects without a namespace are in the namespace default.
func (e *Events) Warning(about corev1.ObjectReference, reason, message string) {
	e.event(about, corev1.EventTypeWarning, reason, message)
}

// Normal makes an Event of type Normal, otherwise as Warning.
func (e *Events) Normal(about corev1.ObjectReference, reason, message string) {
	e.event(about, corev1.EventTypeNormal, reason, message)
}

func (e *Events) event(about corev1.ObjectReference, eventType, reason, message string) {
	if e == nil || e.writer == nil {
		return
	}
	e.history.RecordEvent(e.scope.ID, about.Kind, about.Namespace, about.Name, reason, shown(message))
	if e.permissions.Denies("create", Ref{Resource: events, Namespace: about.Namespace}) {
		return
	}
	e.start.Do(e.record)
	if e.recorder != nil {
		e.recorder.Event(&about, eventType, reason, shown(message))
	}
}

// maxMessage is the length of the message of an Event, in bytes.
const maxMessage = 1000

// shown is a message as readers get it: what others wrote in it neither controls a terminal nor breaks a line, and has an end.
func shown(message string) string {
	line := printable.Line(message[:min(len(message), 2*maxMessage)]) // of what is behind nothing is shown
	if len(line) > maxMessage {
		return printable.Cut(line, maxMessage-len("…"))
	}
	return line
}

// remembered is of how many Events a module remembers that they were made, with their messages, and of how many objects and reasons, with digests of these: together
// at most 2 MB.
const remembered = 1024

// correlation is how Events are counted and limited: as client-go does it by default, but that less is remembered. For what is
// counted and limited it keeps digests in place of names and messages.
var correlation = record.CorrelatorOptions{
	LRUCacheSize: remembered,
	KeyFunc: func(e *corev1.Event) (aggregate, local string) {
		return aboutOf(e, e.Reason, e.ReportingController, e.ReportingInstance), keyOf(e.Message)
	},
	SpamKeyFunc: func(e *corev1.Event) string { return aboutOf(e) },
}

// aboutOf is a short text for the object of an Event, in whatever revision, with the type of the Event and further parts.
func aboutOf(e *corev1.Event, parts ...any) string {
	o := e.InvolvedObject
	o.ResourceVersion, o.FieldPath = "", ""
	return keyOf(e.Source, o, e.Type, parts)
}

// keyOf is a short text for its parts.
func keyOf(parts ...any) string {
	sum := digestOf(parts...)
	return string(sum[:])
}

// WarnOnLease is Warning about the operator itself, which people know by its lease.
func (e *Events) WarnOnLease(reason, message string) {
	if e == nil || e.election == nil {
		return
	}
	namespace, name, ok := strings.Cut(e.election.Status().Lease, "/")
	if ok {
		e.Warning(corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: namespace, Name: name}, reason, message)
	}
}

// record begins to send Events, until the term ends.
func (e *Events) record() {
	api, err := builtin.NewEvents(e.client.RESTConfig())
	if err != nil {
		return // a client of the module's own would have failed before
	}
	ctx := e.writer.fence.Context()
	b := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(correlation))
	b.StartRecordingToSink(&eventSink{ctx, api, e})
	e.recorder = b.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "skep/" + e.scope.ID})
}

// eventSink sends Events through the module's door, with their cause.
type eventSink struct {
	ctx context.Context
	api *builtin.Events
	of  *Events
}

func (s *eventSink) caused(e *corev1.Event) context.Context {
	o := e.InvolvedObject
	return WithCause(s.ctx, &Cause{
		Rule:     s.of.scope.ID + " event",
		Triggers: []Trigger{{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion}},
	})
}

// allowed reports whether the role allows something, as soon as that is known.
func (s *eventSink) allowed(verb, namespace string) bool {
	s.of.permissions.await(s.ctx)
	return s.of.permissions.Allows(verb, Ref{Resource: events, Namespace: namespace})
}

// Create implements record.EventSink, if the role allows that.
func (s *eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	if !s.allowed("create", e.Namespace) {
		return e, nil
	}
	return s.api.In(e.Namespace).Create(s.caused(e), e, metav1.CreateOptions{})
}

// Update implements record.EventSink, which does not call it.
func (s *eventSink) Update(e *corev1.Event) (*corev1.Event, error) {
	return s.api.In(e.Namespace).Update(s.caused(e), e, metav1.UpdateOptions{})
}

// Patch implements record.EventSink: it counts a repetition, if the role
// allows that.
func (s *eventSink) Patch(e *corev1.Event, patch []byte) (*corev1.Event, error) {
	if !s.allowed("patch", e.Namespace) {
		return e, nil
	}
	return s.api.In(e.Namespace).Patch(s.caused(e), e.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

var _ record.EventSink = (*eventSink)(nil)
