// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodegc

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/resources/sweep"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

func local[T any](t *testing.T) *stream.Local[T] {
	t.Helper()
	l, err := stream.NewLocal[T]()
	if err != nil {
		t.Fatal(err)
	}
	l.Replace()
	return l
}

// server has no Node, and notes when CiliumNodes are deleted.
type server struct {
	k8s.Client
	began time.Time

	mu    sync.Mutex
	notes []string
}

func (s *server) Get(_ context.Context, ref k8s.Ref) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
}

func (s *server) Delete(_ context.Context, ref k8s.Ref, only k8s.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, ref.Name+" "+string(only.UID)+" after "+time.Since(s.began).Round(time.Second).String())
	return nil
}

// deleted checks what was deleted so far, and when.
func (b *bubble) deleted(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.notes, want) {
		t.Errorf("deleted are %v, want %v", b.notes, want)
	}
}

// bubble is a controller, five minutes between sweeps.
type bubble struct {
	*server
	nodes  *stream.Local[node]
	cilium *stream.Local[ciliumio.Node]
}

func newBubble(t *testing.T) *bubble {
	b := &bubble{&server{began: time.Now()}, local[node](t), local[ciliumio.Node](t)}
	b.node("other")
	return b
}

// start runs the controller until stop.
func (b *bubble) start(t *testing.T) (stop func()) {
	c := newController(params{Config: Config{5 * time.Minute}, Nodes: b.nodes, Client: b.server})
	deps := sweep.Deps{Module: cell.ModuleInfo{ID: "nodegc"}, Log: slog.New(slog.DiscardHandler), Health: health.NewTree().Reporter("nodegc"), MaxShare: 1}
	objects, err := sweep.NewObjects(deps, b.server, ciliumio.Nodes, b.cilium, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = objects.Run(ctx) }()
	go func() {
		for batch := range b.nodes.Changes(ctx) {
			for _, ch := range batch.Changes {
				objects.Reset(c.nodeAppeared(ch)...)
			}
		}
	}()
	return func() { cancel(); synctest.Wait() }
}

func (b *bubble) node(name string) {
	n := &node{}
	n.Name = name
	b.nodes.Upsert(n)
}

func (b *bubble) ciliumNode(name, uid string) {
	n := &ciliumio.Node{}
	n.Name, n.UID = name, slim.ParseUID(uid)
	b.cilium.Upsert(n)
}

// NGC-3; NGC-E1.
func TestSecondPassDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.ciliumNode("c1", "A")
		stop := b.start(t)
		time.Sleep(6 * time.Minute)
		stop()
		b.deleted(t, "c1 A after 5m0s")
	})
}

// NGC-4; NGC-E3: a Node that was there in between starts the time anew,
// also if no pass saw it.
func TestNodeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.ciliumNode("c1", "A")
		stop := b.start(t)
		time.Sleep(2 * time.Minute)
		b.node("c1")
		time.Sleep(2 * time.Minute)
		b.nodes.Delete(slim.Key{Name: "c1"})
		time.Sleep(5 * time.Minute) // the pass at 5 min is the first that counts
		b.deleted(t)
		time.Sleep(2 * time.Minute)
		stop()
		b.deleted(t, "c1 A after 10m0s")
	})
}

// NGC-4: one of the same name that was made anew is another.
func TestMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		b.ciliumNode("c1", "A")
		stop := b.start(t)
		time.Sleep(2 * time.Minute)
		b.ciliumNode("c1", "B")
		time.Sleep(9 * time.Minute)
		stop()
		b.deleted(t, "c1 B after 10m0s")
	})
}

// NGC-9: one that waits for its finalizers is deleted already.
func TestTerminating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		n := &ciliumio.Node{}
		n.Name, n.UID, n.DeletionTimestamp = "c1", slim.ParseUID("A"), slim.MakeTime(time.Now())
		b.cilium.Upsert(n)
		b.ciliumNode("c2", "B")
		stop := b.start(t)
		time.Sleep(time.Hour)
		stop()
		b.deleted(t, "c2 B after 5m0s", "c2 B after 15m0s", "c2 B after 25m0s", "c2 B after 35m0s", "c2 B after 45m0s", "c2 B after 55m0s")
	})
}
