// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identity

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/domain/labels"
	"github.com/skep-operator/skep/resources/explain"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// maker feeds the table and makes what it finds lacking.
type maker struct {
	params
	loop *reconcile.Loop[slim.Labels]
	add  func(slim.Labels, ...k8s.Trigger) // has a set of labels looked at
	pace pace

	mu       sync.Mutex // guards what follows; never held during a request
	table    *table
	awaited  int // views that are not complete
	complete chan struct{}

	observers observers
}

type params struct {
	cell.In

	Config     cluster.Config
	Options    Config
	Filter     *labels.Filter
	Pods       stream.Resource[slim.Pod]
	Namespaces stream.Resource[slim.Namespace]
	Nodes      stream.Resource[ciliumio.Node]
	Identities stream.Resource[ciliumio.Identity]
	Endpoints  stream.Resource[ciliumio.Endpoint]
	Slices     stream.Resource[ciliumio.EndpointSlice]
	Client     k8s.Client
	Handover   k8s.Handover
	Events     *k8s.Events
	Scope      reconcile.Scope
	Metrics    *identityMetrics
	Health     health.Reporter
	Log        *slog.Logger
}

func newMaker(p params) *maker {
	in := identity.RangeOf(p.Config.ClusterID, p.Config.MaxConnectedClusters)
	m := &maker{params: p, table: newTable(p.Config.ClusterName, in, p.Filter.Keeps, rand.IntN), complete: make(chan struct{})}
	m.table.byPorts = p.Options.IdentityNamedPorts
	m.awaited = len([]any{p.Pods, p.Namespaces, p.Nodes, p.Identities, p.Endpoints})
	m.loop = reconcile.New(p.Scope, "make", m.look, reconcile.Workers(writers), reconcile.Pauses(50*time.Millisecond, 100*time.Second), reconcile.Patient())
	m.add = m.loop.Add
	return m
}

func (m *maker) write() job.Job { return m.loop.Job() }

func (m *maker) seePods() job.Job {
	return feed(m, "Pod", m.Pods, func(t *table, e stream.Event[slim.Pod]) (why string) {
		if e.Kind == stream.Delete {
			t.forgetPod(e.Key)
			return ""
		}
		return t.seePod(e.Object)
	})
}

func (m *maker) seeNamespaces() job.Job {
	return feed(m, "Namespace", m.Namespaces, func(t *table, e stream.Event[slim.Namespace]) string {
		if e.Kind == stream.Delete {
			t.forgetNamespace(e.Key.Name)
		} else {
			t.seeNamespace(e.Object)
		}
		return ""
	})
}

func (m *maker) seeNodes() job.Job {
	return feed(m, "CiliumNode", m.Nodes, func(t *table, e stream.Event[ciliumio.Node]) string {
		if e.Kind == stream.Delete {
			t.forgetNode(e.Key.Name)
		} else {
			t.seeNode(e.Key.Name)
		}
		return ""
	})
}

// seeIdentities begins with what leaders before this one made: a set of labels
// gets one identity, and not another from each leader.
func (m *maker) seeIdentities() job.Job {
	return job.OneShot(func(ctx context.Context) error {
		if err := stream.CatchUp(ctx, m.Identities, m.Handover, v2.CiliumIdentityResource); err != nil {
			return err
		}
		return follow(ctx, m, "CiliumIdentity", m.Identities, seeIdentity)
	}, job.Retry(time.Second, time.Minute))
}

func seeIdentity(t *table, e stream.Event[ciliumio.Identity]) string {
	if e.Kind == stream.Delete {
		t.forgetObject(e.Object.Name, e.Object.ResourceVersion)
	} else {
		t.seeObject(e.Object)
	}
	return ""
}

func feed[T any](m *maker, kind string, r stream.Resource[T], see func(*table, stream.Event[T]) (why string)) job.Job {
	return job.OneShot(func(ctx context.Context) error { return follow(ctx, m, kind, r, see) })
}

// follow hands every change of a view to the table, and has those sets looked at
// that it touches.
func follow[T any](ctx context.Context, m *maker, kind string, r stream.Resource[T], see func(*table, stream.Event[T]) (why string)) error {
	for batch := range r.Batches(ctx, 64, 0, stream.Named("identity")) {
		for _, e := range batch {
			if e.Kind == stream.Sync {
				m.seen()
				continue
			}
			var why string
			touched := m.change(func(t *table) {
				if why = see(t, e); !t.begun { // what is missing may be on its way
					why = ""
				}
			})
			if why == "" && len(touched) == 0 {
				continue
			}
			trigger := k8s.Trigger{Kind: kind, Namespace: e.Key.Namespace, Name: e.Key.Name, ResourceVersion: slim.MetaOf(e.Object).ResourceVersion.String()}
			for _, s := range touched {
				m.add(s.labels, trigger)
			}
			m.explain(e.Key, trigger, why)
		}
		batch.Done(nil)
	}
	return ctx.Err()
}

// change lets f change the table, and tells the pods whose answer changed to
// those who asked. It returns the sets to look at.
func (m *maker) change(f func(*table)) (touched []*set) {
	m.mu.Lock()
	m.table.now = time.Now()
	f(m.table)
	touched, changed := m.table.take()
	m.Metrics.update(m.table)
	m.mu.Unlock()
	m.observers.tell(changed)
	return touched
}

// explain remembers why a pod has no identity.
func (m *maker) explain(pod slim.Key, trigger k8s.Trigger, why string) {
	if why == "" || m.Scope.Book == nil {
		return
	}
	cause := &k8s.Cause{Rule: m.Scope.Module.ID + " assign", Triggers: []k8s.Trigger{trigger}}
	explain.Note(k8s.WithCause(context.Background(), cause), why)
	m.Scope.Book.Decided(cause, pod.String(), nil)
}

// seen is called for each view when it is complete. With the last one, numbers
// are given out.
func (m *maker) seen() {
	var pods, sets, objects int
	begun := false
	touched := m.change(func(t *table) {
		m.awaited--
		if begun = m.awaited == 0; begun {
			t.begin()
		}
		pods, sets, objects = t.pods.Len(), t.used, len(t.objects)
	})
	for _, s := range touched {
		m.add(s.labels)
	}
	if begun {
		close(m.complete)
		m.Log.Info("pods and identities are known, making those that lack", "pods", pods, "label sets", sets, "identities", objects)
	}
}

// byNumber and byNumberInSlice find endpoints by the identity that they have.
var (
	byNumber = stream.NewIndex("identity", func(e *ciliumio.Endpoint, add func(identity.Number)) {
		if e.Status.Identity != nil {
			carries(e.Status.Identity.ID, add)
		}
	})
	byNumberInSlice = stream.NewIndex("identity", func(s *ciliumio.EndpointSlice, add func(identity.Number)) {
		for _, e := range s.Endpoints {
			carries(e.IdentityID, add)
		}
	})
)

// carries tells of a number as endpoints have it. What is too large is none.
func carries(id int64, add func(identity.Number)) {
	if id > 0 && id <= math.MaxUint32 {
		add(identity.Number(id))
	}
}

// seeEndpoints finds out which numbers endpoints have. Where nobody says so there
// is nothing to wait for.
func (m *maker) seeEndpoints() job.Job {
	return job.OneShot(func(ctx context.Context) (err error) {
		switch {
		case m.Config.EnableCiliumEndpointSlice:
			err = carry(ctx, m, m.Slices, byNumberInSlice)
		case m.Config.EndpointCRD():
			err = carry(ctx, m, m.Endpoints, byNumber)
		}
		if err != nil {
			return err
		}
		m.seen()
		<-ctx.Done() // the view stays open so long
		return ctx.Err()
	}, job.Retry(time.Second, time.Minute))
}

func carry[T any](ctx context.Context, m *maker, r stream.Resource[T], index *stream.Index[T, identity.Number]) error {
	store, err := r.Store(ctx)
	if err != nil {
		return err
	}
	stream.CountByIndex(store, index, 0) // builds it
	m.change(func(t *table) {
		t.carried = func(n identity.Number) bool { return stream.CountByIndex(store, index, n) > 0 }
	})
	return nil
}
