// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package sweep

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/panics"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Collector decides which objects of one kind are garbage. It may have further methods:
//
//   - Open(context.Context) error is called before the first scan, for stores.
//   - Confirm(context.Context, *T) (garbage bool, err error) is called before each delete, and
//     asks the API server instead of a store. An error spares the object.
//   - EndScan() is called after each scan.
type Collector[T any] interface {
	// Policy is constant.
	Policy() Policy
	// Garbage reports whether an object is garbage, and why. It reads stores and makes no requests.
	Garbage(obj *T) (why string, garbage bool)
}

// Policy says when garbage is deleted.
type Policy struct {
	// Interval and Grace are as in Spec.
	Interval, Grace time.Duration
	// Fields are those that Garbage reads, as metadata.ownerReferences. An object of which one cannot be decoded is
	// spared.
	Fields []string
	// Propagation is what becomes of dependents, "" for the default of the kind.
	Propagation metav1.DeletionPropagation
}

// Key is an object, and no later one of its name.
type Key struct {
	slim.Key
	UID slim.UID
}

// Objects sweeps the objects of one kind. Unreadable and terminating objects are spared, and a delete has the UID and
// the resourceVersion of the object that was judged as preconditions.
type Objects[T any] struct {
	*Sweep[Key, *T]
	client    k8s.Client
	kind      stream.Kind[T]
	resource  stream.Resource[T]
	store     *stream.Store[T]
	collector Collector[T]
	policy    Policy
	deleted   []int // the field of T
}

// NewObjects returns a sweep over a stream that does not run.
func NewObjects[T any](s Deps, client k8s.Client, kind stream.Kind[T], resource stream.Resource[T], c Collector[T]) (*Objects[T], error) {
	deleted, err := deletionTimestamp[T]()
	if err != nil {
		return nil, err
	}
	o := &Objects[T]{client: client, kind: kind, resource: resource, collector: c, policy: c.Policy(), deleted: deleted}
	spec := Spec[Key, *T]{
		Rule: "collect", Interval: o.policy.Interval, Grace: o.policy.Grace,
		Scan: o.scan, Delete: o.delete, Trigger: o.trigger,
		Namespace: func(obj *T) string { return slim.MetaOf(obj).Namespace.String() },
	}
	if asks, ok := c.(interface {
		Confirm(context.Context, *T) (bool, error)
	}); ok {
		spec.Check = asks.Confirm
	}
	o.Sweep = New(s, spec)
	return o, nil
}

// Run sweeps until ctx ends.
func (o *Objects[T]) Run(ctx context.Context) (err error) {
	if o.store, err = o.resource.Store(ctx); err != nil {
		return err
	}
	if c, ok := o.collector.(interface{ Open(context.Context) error }); ok {
		if err := c.Open(ctx); err != nil {
			return err
		}
	}
	return o.Sweep.Run(ctx)
}

// Reset has the objects with these keys be candidates anew.
func (o *Objects[T]) Reset(keys ...slim.Key) {
	for _, key := range keys {
		o.Sweep.Reset(func(k Key) bool { return k.Key == key })
	}
}

// apply has the objects be candidates anew that a change shows to be in use. A change for which that panics shows nothing: before a delete
// the collector is asked again.
func (o *Objects[T]) apply(changed k8s.Trigger, inUse func() []slim.Key) {
	changed.ResourceVersion = ""
	err := o.panics.Run(changed, func() error { o.Reset(inUse()...); return nil })
	panics.Rebuild(err)
}

func (o *Objects[T]) scan(context.Context) (found Found[Key, *T], err error) {
	for obj := range o.store.All() {
		found.Total++
		meta := slim.MetaOf(obj)
		if u, ok := any(obj).(undecoded); ok && u.CannotDecode(o.policy.Fields...) {
			continue
		}
		if why, garbage := o.isGarbage(obj); garbage {
			found.Candidates = append(found.Candidates, Candidate[Key, *T]{
				Key: Key{meta.Key(), meta.UID}, Object: obj, Why: why, Terminating: o.terminating(obj),
			})
		}
	}
	if c, ok := o.collector.(interface{ EndScan() }); ok {
		c.EndScan()
	}
	return found, nil
}

// isGarbage asks the collector. An object for which it panics is spared.
func (o *Objects[T]) isGarbage(obj *T) (why string, garbage bool) {
	err := o.isolate(named[*T]{obj, o.trigger}, func() error { why, garbage = o.collector.Garbage(obj); return nil })
	return why, garbage && err == nil
}

// undecoded is what objects have of which a field may be impossible to decode.
type undecoded interface {
	CannotDecode(fields ...string) bool
}

// terminating reports whether an object has a deletion timestamp.
func (o *Objects[T]) terminating(obj *T) bool {
	at := reflect.ValueOf(obj).Elem().FieldByIndex(o.deleted)
	return !at.IsZero()
}

// deletionTimestamp is the field of T for it.
func deletionTimestamp[T any]() ([]int, error) {
	f, ok := reflect.TypeFor[T]().FieldByName("DeletionTimestamp")
	if !ok || f.Type != reflect.TypeFor[slim.Time]() {
		return nil, fmt.Errorf("%s keeps no deletion timestamp, so that terminating objects would be deleted again: "+
			"add the field DeletionTimestamp slim.Time `json:\"deletionTimestamp\"` to its metadata", reflect.TypeFor[T]())
	}
	return f.Index, nil
}

// delete deletes the object as it was judged: it may have been written since.
func (o *Objects[T]) delete(ctx context.Context, obj *T) (Outcome, error) {
	meta := slim.MetaOf(obj)
	ref := k8s.Ref{Resource: o.kind.Resource(), Namespace: meta.Namespace.String(), Name: meta.Name}
	return OutcomeOf(o.client.Delete(ctx, ref, k8s.Preconditions{
		UID: meta.UID.API(), ResourceVersion: meta.ResourceVersion.String(), Propagation: o.policy.Propagation,
	}), ref)
}

func (o *Objects[T]) trigger(obj *T) k8s.Trigger {
	meta := slim.MetaOf(obj)
	return k8s.Trigger{Kind: o.kind.Name(), Namespace: meta.Namespace.String(), Name: meta.Name, ResourceVersion: meta.ResourceVersion.String()}
}
