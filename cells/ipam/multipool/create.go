// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package multipool

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/api/v2alpha1"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// creator creates the pools of the flag that do not exist when the term begins.
type creator struct {
	creatorParams
	specs map[string]v2alpha1.CiliumPodIPPoolSpec
	queue *reconcile.Queue[string]
	store *stream.Store[podIPPool]

	mu        sync.Mutex
	untried   map[string]bool // pools to create
	attempted chan struct{}   // closed when there is none
}

// patience is how long nodes wait for the first attempt to create pools, and that for the stream to show them.
const patience = 5 * time.Second

type creatorParams struct {
	cell.In

	Config Config
	Pools  stream.Resource[podIPPool]
	Client k8s.Client
	Deps   reconcile.Deps
}

func newCreator(p creatorParams) (*creator, error) {
	specs, err := p.Config.pools()
	if err != nil {
		return nil, err
	}
	c := &creator{creatorParams: p, specs: specs, untried: map[string]bool{}, attempted: make(chan struct{})}
	c.queue = reconcile.NewQueue(p.Deps, "create", c.create)
	return c, nil
}

func (c *creator) run(ctx context.Context) (err error) {
	if len(c.specs) == 0 {
		return nil
	}
	if c.store, err = c.Pools.Store(ctx); err != nil {
		return err
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(c.specs)) {
		if !exists(c.store, slim.Key{Name: name}) {
			missing = append(missing, name)
		}
	}
	c.expect(missing)
	for _, name := range missing {
		c.queue.Add(name, c.Deps.TermTrigger())
	}
	return c.queue.Run(ctx)
}

// await returns when it was tried to create all pools: nodes must not be told that a pool does not exist which is about to.
func (c *creator) await(ctx context.Context) {
	if len(c.specs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-c.attempted:
	case <-ctx.Done():
	}
}

func (c *creator) expect(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		c.untried[name] = true
	}
	if len(names) == 0 {
		close(c.attempted)
	}
}

// tried records an attempt.
func (c *creator) tried(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.untried[name] {
		return
	}
	if delete(c.untried, name); len(c.untried) == 0 {
		close(c.attempted)
	}
}

func exists(store *stream.Store[podIPPool], key slim.Key) bool {
	_, ok := store.Get(key)
	return ok || store.Hides(key)
}

// create creates a pool. One that exists is left as it is.
func (c *creator) create(ctx context.Context, name string) error {
	defer c.tried(name)
	stored, err := k8s.Create(ctx, c.Client, podIPPools.Resource(), &v2alpha1.CiliumPodIPPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v2alpha1.SchemeGroupVersion.String(), Kind: podIPPools.Name()},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: c.specs[name],
	})
	if k8s.IsAlreadyExists(err, k8s.Ref{Resource: podIPPools.Resource(), Name: name}) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.awaitShown(ctx, name, stored.ResourceVersion)
}

// awaitShown returns when the stream shows a pool. What it shows later is no error.
func (c *creator) awaitShown(ctx context.Context, name, resourceVersion string) error {
	revision, err := slim.ParseRevision(resourceVersion)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = c.store.WaitFor(ctx, slim.Key{Name: name}, revision)
	return nil
}
