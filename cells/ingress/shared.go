// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// sharedPause is the least time between two translations of the shared CiliumEnvoyConfig: what changes in it is written at once. Where something is left out each costs
// more, and pauses are twice as long as one, up to mostPause: others wait for them.
const (
	sharedPause = 100 * time.Millisecond
	mostPause   = 500 * time.Millisecond
)

// unreadableRetry is how often the shared load balancer is reconciled while an Ingress cannot be decoded.
const unreadableRetry = time.Minute

// shared is the state of the shared load balancer. Its key is reconciled by one worker at a time.
type shared struct {
	translator envoy.Translator
	ingested   map[slim.Key]cached
	// digest is that of the spec for what is ingested, if it was translated.
	digest       envoy.Digest
	isTranslated bool
	pause        time.Time // until when it is not translated again
	// limit is what the sizes of the Ingresses may be together, 0 while all fit.
	limit int
	out   map[slim.Key]bool // those that the configuration goes without
	// weights are how much more than alone the Ingresses of a namespace have together.
	weights map[string]float64
	// warned is whether the log has what objects lose to older ones of other namespaces.
	warned bool
}

// cached is an Ingress that was turned into listeners and routes.
type cached struct {
	of      *ingress
	input   input
	notices []envoyres.Notice
	measured
	was     measured // before it changed, if something is left out
	crowded bool     // its names are too many, and not known
	ingested
}

// measured is what an Ingress adds to the configuration, about, in bytes; 0 while it is not known.
type measured struct {
	size  int
	names int // of that what its hosts have where it is left out
}

// isFresh reports whether an Ingress would be turned into the same.
func (e cached) isFresh(now input, find func(backendPort) found) bool {
	if e.input != now {
		return false
	}
	for of, was := range e.backends {
		if find(of) != was {
			return false
		}
	}
	return true
}

// reconcileShared writes the CiliumEnvoyConfig of all Ingresses that share a load balancer.
func (c *controller) reconcileShared(ctx context.Context) (reconcile.Result, error) {
	if pause := c.shared.pause.Sub(c.Deps.Plan.Now()); pause > 0 {
		return reconcile.Result{RequeueAfter: pause, Reason: isPaused}, nil
	}
	if len(c.ingresses.Unreadable()) > 0 { // one of them may share it
		return reconcile.Result{RequeueAfter: unreadableRetry, Reason: unreadable}, nil
	}
	if c.ingestShared() {
		c.shared.isTranslated = false
	}
	desired := envoyres.Desired{Key: c.sharedService(), NodeSourceAddress: true, LabelLater: c.labelsLater()}
	if desired.Spec.Digest = c.shared.digest; c.shared.isTranslated && envoyres.IsCurrent(c.configs, desired) {
		return reconcile.Result{}, nil
	}
	begin := c.Deps.Plan.Now()
	t, spec, err := c.packShared(ctx)
	c.shared.rest(begin, c.Deps.Plan.Now())
	if err == nil && t.Empty {
		c.reportShared(t.Problems, nil)
		c.Metrics.SharedSize.Set(0)
		return reconcile.Result{Reason: noShared}, envoyres.Delete(k8s.WithManySources(ctx), c.Client, c.configs, c.sharedService(), nil)
	}
	if err == nil {
		c.Metrics.SharedSize.Set(float64(len(spec.JSON)))
		c.shared.digest, c.shared.isTranslated = spec.Digest, true
		desired.Spec = spec
		_, err = envoyres.Write(ctx, c.Client, c.configs, desired)
	}
	if envoyres.ConcernsUser(err) {
		c.reportShared(t.Problems, []envoyres.Notice{{Reason: "NotWritten", Message: err.Error(), Degrades: true}})
		return reconcile.Result{Reason: isRefused}, nil
	}
	if err == nil {
		c.reportShared(t.Problems, nil)
	}
	return reconcile.Result{}, err
}

// rest has the next translation begin a while after one.
func (s *shared) rest(begin, end time.Time) {
	pause := sharedPause
	if len(s.out) > 0 {
		pause = max(pause, min(2*end.Sub(begin), mostPause))
	}
	s.pause = end.Add(pause)
}

// ingestShared ingests all Ingresses that share a load balancer, and reports whether any is another one than before.
func (c *controller) ingestShared() (changed bool) {
	all, now := c.sharing(), map[slim.Key]cached{}
	crowd := crowdOf(all, mostNames)
	for _, i := range all {
		key := i.Key()
		e, known := c.shared.ingested[key]
		if !known || e.crowded != crowd[key] || !e.isFresh(inputOf(i), c.find) {
			changed = true
			was := cmp.Or(e.measured, e.was)
			if e = c.ingestOne(i, crowd[key]); c.shared.limit > 0 {
				e.was = was
			}
		}
		e.of = i
		now[key] = e
	}
	for key := range c.shared.ingested {
		if _, still := now[key]; !still {
			changed = true
			c.shared.forget(key.Namespace)
			c.reports.Set(sharedMode, aboutIngress(c.shared.ingested[key].of))
		}
	}
	c.shared.ingested = now
	return changed
}

// sharing are the Ingresses that share a load balancer.
func (c *controller) sharing() (all []*ingress) {
	byDefault := c.byDefault()
	for i := range c.ingresses.All() {
		if !i.DeletionTimestamp.IsZero() || !isManaged(i, byDefault) {
			continue
		}
		e, known := c.shared.ingested[i.Key()]
		if known && e.input == inputOf(i) || settingsOf(i, c.Config).shared {
			all = append(all, i)
		}
	}
	return all
}

// ingestOne ingests an Ingress that shares a load balancer. Of one whose names are too many nothing is known.
func (c *controller) ingestOne(i *ingress, isCrowded bool) cached {
	s := settingsOf(i, c.Config)
	e := cached{input: inputOf(i), crowded: isCrowded}
	if isCrowded {
		e.notices = append(s.notices, tooManyNames(i))
		return e
	}
	e.ingested = c.ingest(i, s)
	e.notices = slices.Concat(s.notices, e.ingested.notices)
	return e
}

// model is that of the Ingresses that share a load balancer, in the order of their names. Those that are left out only keep their hosts, as far as there is space.
func (s *shared) model() (m envoy.Model) {
	for _, key := range sortedKeys(s.ingested) {
		part := s.kept(key, s.ingested[key])
		m.HTTP = append(m.HTTP, part.HTTP...)
		m.Passthrough = append(m.Passthrough, part.Passthrough...)
	}
	return m
}

// reportShared reports what users are to know of the Ingresses that share a load balancer.
func (c *controller) reportShared(problems []envoy.Problem, all []envoyres.Notice) {
	found := noticesOf(problems)
	c.countConflicts(problems)
	for key, e := range c.shared.ingested {
		notices := slices.Concat(e.notices, found[nameOf(key)], all)
		if c.shared.out[key] {
			notices = append(notices, leftOut(e.size))
		}
		c.reports.Set(sharedMode, aboutIngress(e.of), notices...)
	}
}

// countConflicts counts the Ingresses that lose something to older ones of other namespaces. The first time, the log has it in one line.
func (c *controller) countConflicts(problems []envoy.Problem) {
	losers, first := map[envoy.Name]bool{}, ""
	for _, p := range problems {
		if p.Owner != (envoy.Name{}) {
			losers[p.Source] = true
			if at := p.Source.String(); first == "" || at < first {
				first = at
			}
		}
	}
	c.conflicts.Set(sharedKey, len(losers), first)
	if len(losers) > 0 && !c.shared.warned {
		c.shared.warned = true
		c.Log.Warn("hosts of some of them belong to older Ingresses of other namespaces; ingress-join-namespaces joins them, as the original does",
			"ingresses", len(losers))
	}
}
