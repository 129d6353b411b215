// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// controller copies what is referred to. A key is that of a Secret, or of a ConfigMap with a prefix.
type controller struct {
	params
	secrets    *stream.Store[secret]
	references *references
	namespaces map[secretref.Kind][]string // of copies
	states     *metrics.States[slim.Key]
	reports    reports
	first      []secretref.Object // what had its name first, until it is woken: nothing may refer to it any more

	mu         sync.Mutex
	unused     map[secretref.Object]time.Time // since when an object with copies has no references
	incomplete map[secretref.Kind]time.Time   // since when references may be missing
}

type params struct {
	cell.In

	Config  secretref.Config
	Sources []secretref.Source `group:"references to secrets"`
	Names   *secretref.Names
	Secrets stream.Resource[secret]
	Client  k8s.Client
	Events  *k8s.Events
	Deps    reconcile.Deps
	Metrics *syncMetrics
	Health  health.Reporter
	Log     *slog.Logger
}

func newController(p params) *controller {
	c := &controller{
		params: p, references: newReferences(), namespaces: map[secretref.Kind][]string{}, unused: map[secretref.Object]time.Time{}, incomplete: map[secretref.Kind]time.Time{},
		states: metrics.NewStates[slim.Key](p.Metrics.Secrets, stateCopied, stateMissing, stateConflict),
	}
	c.Sources = slices.DeleteFunc(slices.Clone(p.Sources), func(s secretref.Source) bool { return s == nil })
	c.reports.params = p
	for _, s := range c.Sources {
		if !slices.Contains(c.namespaces[s.Kind()], s.Namespace()) {
			c.namespaces[s.Kind()] = append(c.namespaces[s.Kind()], s.Namespace())
		}
	}
	return c
}

// writers is the number of objects that are copied at once.
const writers = 8

// QueueOptions are those of the work queue.
func (*controller) QueueOptions() []reconcile.Option {
	return []reconcile.Option{reconcile.Workers(writers)}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.secrets, err = c.Secrets.Store(ctx); err != nil {
		return err
	}
	for _, s := range c.Sources { // before copies: of two of an object the one that a configuration has goes on
		if p, ok := s.(secretref.Pins); ok {
			p.PinAll(ctx)
		}
	}
	for s := range c.secrets.All() {
		c.observe(s)
	}
	for _, s := range c.Sources {
		if c.sharesNamespace(s) {
			c.first = append(c.first, c.giveFirst(ctx, s)...)
		}
	}
	c.Names.MarkKnown()
	return nil
}

// giveFirst gives what needs a plain name its name before others are given any: these can have another one. Those of other namespaces do not wait for it.
func (c *controller) giveFirst(ctx context.Context, s secretref.Source) (given []secretref.Object) {
	plain, is := s.(secretref.PlainNames)
	if !is {
		return nil
	}
	for _, of := range plain.Initial(ctx) {
		if !c.holdsCopies(of.Namespace) && c.Names.Plain(s.Namespace(), of) {
			given = append(given, of)
		}
	}
	return given
}

// sharesNamespace reports whether there are copies for others in the namespace of a source.
func (c *controller) sharesNamespace(s secretref.Source) bool {
	return slices.ContainsFunc(c.Sources, func(other secretref.Source) bool { return other != s && other.Namespace() == s.Namespace() })
}

// observe has the names of copies know of a Secret.
func (c *controller) observe(s *secret) {
	if namespace := s.Namespace.String(); c.holdsCopies(namespace) {
		of, isCopy := s.Owner()
		if isCopy && s.IsDefault() {
			c.Names.RecallDefault(of)
		}
		c.Names.Exists(namespace, s.Name, of)
	}
}

// holdsCopies reports whether a namespace is for copies. Secrets there are not copied.
func (c *controller) holdsCopies(namespace string) bool {
	for _, all := range c.namespaces {
		if slices.Contains(all, namespace) {
			return true
		}
	}
	return false
}

// secretChanged is what a Secret is a copy of, or the Secret if it is referred to or was.
func (c *controller) secretChanged(ch stream.Change[secret]) (keys []slim.Key) {
	if !c.holdsCopies(ch.Key.Namespace) {
		of := secretref.Object{Kind: secretref.Secret, Key: ch.Key}
		if c.references.has(of) || stream.CountByIndex(c.secrets, byOwner, of) > 0 {
			keys = append(keys, ch.Key)
		}
		return keys
	}
	if ch.Kind == stream.Delete {
		c.Names.Gone(ch.Key.Namespace, ch.Key.Name)
	} else {
		c.observe(ch.Object)
	}
	if of, isCopy := ch.Object.Owner(); isCopy {
		keys = append(keys, keyOf(of))
	}
	for _, of := range c.references.byCopy(ch.Key.Name) { // it may have taken the name of its copy, or have freed it
		keys = append(keys, keyOf(of))
	}
	return keys
}

// follow has all sources report their references.
func (c *controller) follow(ctx context.Context, enqueue reconcile.Enqueue) {
	wake := func(all []secretref.Object) {
		for _, of := range all {
			enqueue(keyOf(of), k8s.Trigger{Kind: string(of.Kind), Namespace: of.Namespace, Name: of.Name})
		}
	}
	wake(c.first)
	c.first = nil
	var follows []func(context.Context)
	for _, s := range c.Sources {
		follows = append(follows, func(ctx context.Context) {
			if !c.sharesNamespace(s) {
				wake(c.giveFirst(ctx, s))
			}
			s.Follow(ctx, &recorder{c, s.Name(), enqueue})
		})
	}
	reconcile.RunTogether(ctx, follows)
}

// recorder records the references of a source.
type recorder struct {
	*controller
	source  string
	enqueue reconcile.Enqueue
}

// Set implements secretref.Recorder.
func (r *recorder) Set(from corev1.ObjectReference, to ...secretref.Object) {
	r.SetFirst(from, 0, to...)
}

// SetFirst implements secretref.Recorder.
func (r *recorder) SetFirst(from corev1.ObjectReference, others int, to ...secretref.Object) {
	to, beyond := bounded(to)
	r.reports.setBeyond(from, others+beyond)
	added, removed := r.references.set(reference{r.source, from}, to)
	for _, of := range removed {
		r.reports.clear(from, of)
	}
	for _, of := range slices.Concat(added, removed) {
		r.enqueue(keyOf(of), k8s.Trigger{Kind: from.Kind, Namespace: from.Namespace, Name: from.Name})
	}
}

// SetUnknown implements secretref.Recorder.
func (r *recorder) SetUnknown(from corev1.ObjectReference) {
	r.references.isUnknown(reference{r.source, from})
}

// mostReferences is how many Secrets and ConfigMaps an object may refer to: each of them is read, copied and reported by itself. An
// Envoy configuration has no place for more certificates (SEC-16).
const mostReferences = 1000

// bounded are the first objects that are referred to, and how many others there are.
func bounded(to []secretref.Object) (kept []secretref.Object, beyond int) {
	if len(to) <= mostReferences {
		return to, 0
	}
	seen := map[secretref.Object]bool{}
	for _, of := range to {
		if seen[of] {
			continue
		}
		seen[of] = true
		if len(kept) < mostReferences {
			kept = append(kept, of)
		} else {
			beyond++
		}
	}
	return kept, beyond
}

// Changed implements secretref.Recorder.
func (r *recorder) Changed(of secretref.Object) {
	if r.references.has(of) {
		r.enqueue(keyOf(of), k8s.Trigger{Kind: string(of.Kind), Namespace: of.Namespace, Name: of.Name})
	}
}

// Why nothing is written.
const (
	notReferenced = "none: no object of ours refers to it"
	isMissing     = "none: it does not exist"
	isTaken       = "none: the name of the copy is taken"
	isIncomplete  = "waits: references to it may be missing"
	waitsForGrace = "waits: no object refers to it any more, and one may yet"
)

// Reconcile brings the copies of an object to their desired state.
func (c *controller) Reconcile(ctx context.Context, key slim.Key) (reconcile.Result, error) {
	of := objectOf(key)
	complete := c.complete(of.Kind) // asked before what is needed: references that come later are seen by the next one
	needed := c.needed(of)
	copies := c.copiesOf(of)
	if len(needed) == 0 && len(copies) == 0 {
		c.Names.Release(of)
		c.setUnused(of, false, grace)
		c.states.Set(key, "")
		return reconcile.Result{Reason: notReferenced}, nil
	}
	ctx, release := k8s.WithTurn(ctx) // the Secret and each of its copies may be large
	defer release()
	want, err := c.read(ctx, of)
	if err != nil {
		return reconcile.Result{}, err
	}
	if want == nil {
		c.reportMissing(of, needed)
		return reconcile.Result{Reason: isMissing}, c.removeAll(ctx, copies)
	}
	kept := c.addKept(of, needed, copies)
	result, err := c.writeAll(ctx, of, needed, *want)
	rest, removeErr := c.removeUnneeded(ctx, of, needed, copies, complete)
	if rest.RequeueAfter > 0 {
		result = rest
	} else if kept && result.RequeueAfter == 0 {
		result = reconcile.Result{RequeueAfter: renameGrace, Reason: waitsForGrace}
	}
	return result, errors.Join(err, removeErr)
}

// addKept adds the copies whose names configurations have, which may not be made anew, beside those that are needed in the same namespace, and those to which
// objects may refer of which nothing is known. It reports whether there are some: nothing wakes the object when that is over.
func (c *controller) addKept(of secretref.Object, needed map[place][]reference, copies []*secret) (some bool) {
	in := map[string]bool{}
	for at := range needed {
		in[at.namespace] = true
	}
	for _, s := range copies {
		at := place{s.Namespace.String(), s.Name}
		if _, is := needed[at]; is {
			continue
		}
		if isNamed := c.Names.IsNamed(at.namespace, at.name); isNamed && in[at.namespace] || c.references.mayBeTo(of, isNamed) {
			needed[at], some = nil, true
		}
	}
	return some
}

// place is where a copy is to be. Without a name another object has the plain one, which is needed.
type place struct{ namespace, name string }

// needed are the references to an object by the place in which a copy is to be.
func (c *controller) needed(of secretref.Object) map[place][]reference {
	needed := map[place][]reference{}
	if c.holdsCopies(of.Namespace) {
		return needed
	}
	for _, ref := range c.references.of(of) {
		i := slices.IndexFunc(c.Sources, func(s secretref.Source) bool { return s.Name() == ref.source })
		if c.Config.PolicySecretsOwnNamespaceOnly && c.borrows(ref, of) {
			c.reports.set(of, []reference{ref}, refused(of))
			continue
		}
		at := c.placeOf(c.Sources[i], of)
		needed[at] = append(needed[at], ref)
	}
	return needed
}

// borrows reports whether a network policy of a namespace refers to an object of another one.
func (c *controller) borrows(ref reference, of secretref.Object) bool {
	i := slices.IndexFunc(c.Sources, func(s secretref.Source) bool { return s.Name() == ref.source })
	_, plain := c.Sources[i].(secretref.PlainNames)
	return plain && ref.from.Namespace != "" && ref.from.Namespace != of.Namespace
}

func (c *controller) placeOf(s secretref.Source, of secretref.Object) place {
	if _, pins := s.(secretref.Pins); pins {
		return place{s.Namespace(), c.Names.Kept(s.Namespace(), of)}
	}
	if _, plain := s.(secretref.PlainNames); !plain {
		return place{s.Namespace(), c.Names.Of(s.Namespace(), of)}
	}
	if !c.Names.Plain(s.Namespace(), of) {
		return place{namespace: s.Namespace()}
	}
	return place{s.Namespace(), of.CopyName()}
}

// copiesOf are the copies of an object in the namespaces for its kind.
func (c *controller) copiesOf(of secretref.Object) (copies []*secret) {
	for s := range stream.ByIndex(c.secrets, byOwner, of) {
		if slices.Contains(c.namespaces[of.Kind], s.Namespace.String()) {
			copies = append(copies, s)
		}
	}
	return copies
}

// grace is how long copies stay that nothing refers to: what refers to them now may be seen later than what did before.
const grace = 2 * time.Second

// renameGrace is how long a copy stays whose object has one of another name, which configurations have to be written with. A test shortens it.
var renameGrace = time.Minute

// graceOf is how long copies stay that nothing needs.
func (c *controller) graceOf(needed map[place][]reference, copies []*secret) time.Duration {
	if len(needed) > 0 && slices.ContainsFunc(copies, func(s *secret) bool { return c.Names.Hides(s.Namespace.String()) }) {
		return renameGrace
	}
	return grace
}

// removeUnneeded deletes the copies that nothing refers to, once all references are known.
func (c *controller) removeUnneeded(
	ctx context.Context, of secretref.Object, needed map[place][]reference, copies []*secret, complete bool,
) (reconcile.Result, error) {
	copies = slices.DeleteFunc(copies, func(s *secret) bool { _, is := needed[place{s.Namespace.String(), s.Name}]; return is })
	if len(needed) == 0 {
		c.states.Set(keyOf(of), "")
	}
	rest := c.setUnused(of, complete && len(copies) > 0, c.graceOf(needed, copies))
	if len(copies) == 0 {
		return reconcile.Result{}, nil
	}
	if !complete {
		return reconcile.Result{RequeueAfter: grace, Reason: isIncomplete}, nil
	}
	if rest > 0 {
		return reconcile.Result{RequeueAfter: rest, Reason: waitsForGrace}, nil
	}
	return reconcile.Result{}, c.removeAll(ctx, copies)
}

// setUnused records since when an object has copies without references. It returns how much of the grace is left.
func (c *controller) setUnused(of secretref.Object, unused bool, grace time.Duration) (rest time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Deps.Plan.Now()
	if !unused {
		delete(c.unused, of)
		return 0
	}
	if _, known := c.unused[of]; !known {
		c.unused[of] = now
	}
	return grace - now.Sub(c.unused[of])
}

// patience is how long references may be incomplete until health shows it.
const patience = 90 * time.Second

// complete reports whether all references to objects of a kind are known.
func (c *controller) complete(kind secretref.Kind) bool {
	var errs []error
	for _, s := range c.Sources {
		if s.Kind() == kind {
			errs = append(errs, s.Complete())
		}
	}
	err := errors.Join(errs...)
	c.mu.Lock()
	defer c.mu.Unlock()
	now, since := c.Deps.Plan.Now(), c.incomplete[kind]
	switch {
	case err == nil && !since.IsZero():
		delete(c.incomplete, kind)
		c.healthOf(kind).OK("")
	case err != nil && since.IsZero():
		c.incomplete[kind] = now
	case err != nil && now.Sub(since) > patience:
		c.healthOf(kind).Degraded("no copy is deleted, since references may be missing", err)
	}
	return err == nil
}

func (c *controller) healthOf(kind secretref.Kind) health.Reporter {
	return c.Health.Child("references-" + strings.ToLower(string(kind)))
}
