// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crds

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/skep-operator/skep/resources/api"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/runtime/job"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

// registrar brings definitions to the state that the cluster needs.
type registrar struct {
	definitions definitions
	log         *slog.Logger
	metrics     *crdMetrics
	kinds       map[string]api.Kind // by the name of their definition
	loop        *reconcile.Loop[string]

	mu      sync.Mutex
	results map[string]result
	missing sets.Set[string] // definitions that do not serve yet
	awaited sets.Set[string] // those of them that may soon
	kept    map[string]*unstructured.Unstructured
	settled chan struct{} // closed when awaited becomes empty
}

// result is what came of comparing a definition with ours.
type result string

const (
	created result = "created"
	updated result = "updated"
	equal   result = "equal"
	drifted result = "drifted" // our version, and another schema
	newer   result = "newer"
	failed  result = "failed"

	unlooked result = "" // it serves and bears our version; its schema was not compared
)

func newRegistrar(c Config, shared cluster.Config, client k8s.Client, s reconcile.Scope, m *crdMetrics) *registrar {
	r := &registrar{
		definitions: definitions{client}, log: s.Log, metrics: m,
		kinds: map[string]api.Kind{}, results: map[string]result{},
		missing: sets.Set[string]{}, awaited: sets.Set[string]{}, kept: map[string]*unstructured.Unstructured{}, settled: make(chan struct{}),
	}
	r.loop = reconcile.New(s, "register", r.register, reconcile.Workers(8), reconcile.Pauses(50*time.Millisecond, 30*time.Second))
	for _, k := range wanted(c, shared) {
		name := k.CRDName()
		r.kinds[name] = k
		r.missing.Insert(name)
		r.awaited.Insert(name)
		r.loop.Add(name, k8s.Trigger{Kind: "Term", Name: "leader"})
	}
	return r
}

func (r *registrar) job() job.Job { return r.loop.Job() }

// firstPass holds the other cells of the term back until all definitions are
// there, or will not be soon. What is missing then is registered meanwhile; the
// streams of such kinds wait by themselves.
func (r *registrar) firstPass() lifecycle.Hook {
	return lifecycle.Funcs{OnStart: func(ctx context.Context) error {
		deadline := time.NewTimer(firstPassLimit / 2)
		defer deadline.Stop()
		select {
		case <-r.settled:
		case <-ctx.Done():
		case <-deadline.C:
		}
		if missing := r.missingText(); missing != "" {
			r.log.Warn("not all kinds are registered yet; duties that need them wait, the others start", "missing", missing)
		}
		return nil
	}}
}

func (r *registrar) missingText() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(sets.List(r.missing), ", ")
}

// establishedPause is how often a new definition is looked at until it serves.
const establishedPause = 50 * time.Millisecond

// register looks at one definition, and comes back until it serves.
func (r *registrar) register(ctx context.Context, name string) error {
	look, err := r.bring(ctx, r.kinds[name])
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil:
		r.metrics.set(name, look.installed, failed)
		if lasts(err) {
			r.settle(name, false)
		}
		return err
	}
	if look.result == unlooked {
		r.settle(name, true)
		return reconcile.After(comparePause)
	}
	r.tell(name, look)
	if !look.serves {
		return reconcile.After(establishedPause)
	}
	r.settle(name, true)
	return nil
}

// comparePause puts the comparison of schemas, which costs time, behind what the
// other duties of a new term have to do.
const comparePause = 2 * time.Second

// keep sets a definition aside for its comparison.
func (r *registrar) keep(name string, installed *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept[name] = installed
}

// find returns the definition that was kept for its comparison, or reads it.
func (r *registrar) find(ctx context.Context, k api.Kind) (*unstructured.Unstructured, error) {
	r.mu.Lock()
	kept := r.kept[k.CRDName()]
	delete(r.kept, k.CRDName())
	r.mu.Unlock()
	if kept != nil {
		return kept, nil
	}
	return r.definitions.get(ctx, k)
}

// hurries reports whether other duties still wait for a definition.
func (r *registrar) hurries(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.awaited.Has(name)
}

// settle notes that a definition serves, or will not soon.
func (r *registrar) settle(name string, serves bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if serves {
		r.missing.Delete(name)
	}
	if r.awaited.Has(name) && r.awaited.Delete(name).Len() == 0 {
		close(r.settled)
	}
}

// lasts reports whether somebody has to act before an error goes away.
func lasts(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, errNamesTaken) || errors.Is(err, errBeingDeleted)
}

// look is what was found, or done.
type look struct {
	installed string // version, as the label says
	result    result
	serves    bool // as its conditions say
}

var errBeingDeleted = errors.New("it is being deleted; it is created again when it is gone")

// bring takes the next step towards a definition that is current and
// established.
func (r *registrar) bring(ctx context.Context, k api.Kind) (look, error) {
	found, err := r.find(ctx, k)
	if err == nil && r.hurries(k.CRDName()) && isServed(found) {
		r.keep(k.CRDName(), found)
		return look{installed: api.SchemaVersion, result: unlooked, serves: true}, nil
	}
	ours, parseErr := k.CRD()
	if parseErr != nil {
		return look{}, parseErr
	}
	if apierrors.IsNotFound(err) {
		err = r.definitions.create(ctx, ours)
		if err == nil {
			return look{installed: api.SchemaVersion, result: created}, nil
		}
		if apierrors.IsAlreadyExists(err) { // another instance was faster
			found, err = r.definitions.get(ctx, k)
		}
	}
	if err != nil {
		return look{}, err
	}
	installed, err := typed(found)
	if err != nil {
		return look{}, err
	}
	d := decide(installed, ours)
	switch d.action {
	case wait:
		return look{installed: d.installed}, errBeingDeleted
	case update: // its conditions are those of before: look again
		return look{installed: d.installed, result: updated}, r.definitions.update(ctx, k, ours)
	}
	serves, err := established(installed)
	return look{installed: d.installed, result: d.result, serves: serves}, err
}

// isServed reports whether a definition bears our version and can be used. Its
// schema is not looked at.
func isServed(found *unstructured.Unstructured) bool {
	installed, err := head(found)
	if err != nil || !isCurrent(installed) {
		return false
	}
	serves, err := established(installed)
	return serves && err == nil
}

// tell logs and counts what is new about a definition. One that was created or
// updated is found equal at the next look.
func (r *registrar) tell(name string, l look) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.results[name]
	if l.result == equal && before != "" {
		l.result = before
	}
	r.results[name] = l.result
	switch {
	case l.result == before:
	case l.result == created:
		r.log.Info("created a definition", "name", name, "version", api.SchemaVersion)
	case l.result == updated:
		r.log.Info("updated a definition", "name", name, "from", l.installed, "to", api.SchemaVersion)
	case l.result == newer:
		r.log.Info("a newer definition is installed, it is left as it is", "name", name, "installed", l.installed, "ours", api.SchemaVersion)
	case l.result == drifted:
		r.log.Warn("a definition bears our version with another schema; it is left as it is, remove its label "+api.SchemaVersionLabel+" to have it replaced",
			"name", name, "version", l.installed)
	}
	r.metrics.set(name, l.installed, l.result)
}

// tellSkipped says that nothing is registered, in the words that users know.
func tellSkipped(log *slog.Logger) { log.Info("Skipping creation of CRDs") }
