// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// policySource reports the secrets of network policies.
type policySource struct {
	config      secretref.Config
	policies    *secretref.Watch[networkpolicy.Policy]
	clusterwide *secretref.Watch[networkpolicy.ClusterwidePolicy]
	unknown     undecoded
	log         *slog.Logger
}

func newPolicySource(c secretref.Config, p stream.Resource[networkpolicy.Policy], cp stream.Resource[networkpolicy.ClusterwidePolicy], log *slog.Logger) secretref.SourceOut {
	return secretref.SourceOut{Source: &policySource{
		config: c, log: log, policies: secretref.NewWatch(p, "spec", "specs"), clusterwide: secretref.NewWatch(cp, "spec", "specs"),
	}}
}

// Name implements secretref.Source.
func (*policySource) Name() string { return "policies" }

// Namespace implements secretref.Source.
func (s *policySource) Namespace() string { return s.config.PolicySecretsNamespace }

// Kind implements secretref.Source.
func (*policySource) Kind() secretref.Kind { return secretref.Secret }

// policyLimit is how long names wait for the network policies that exist. They may be many, and of others; without them, the first one that asks has a plain name.
const policyLimit = 30 * time.Second

// Initial implements secretref.PlainNames: agents compute the names of the secrets of policies. Those of clusters do not wait for those of namespaces, which may
// be many.
func (s *policySource) Initial(ctx context.Context) []secretref.Object {
	var all, wide []*networkpolicy.Policy
	var both sync.WaitGroup
	began := time.Now()
	both.Go(func() { s.policies.Initial(ctx, policyLimit, func(p *networkpolicy.Policy) { all = append(all, p) }) })
	both.Go(func() {
		s.clusterwide.Initial(ctx, policyLimit, func(p *networkpolicy.ClusterwidePolicy) { wide = append(wide, (*networkpolicy.Policy)(p)) })
	})
	both.Wait()
	if time.Since(began) >= policyLimit && ctx.Err() == nil {
		s.log.Warn("names of copies of Secrets are given before all network policies are known: of two that need one name the first that asks has it", "limit", policyLimit)
	}
	return initialOf(slices.Concat(all, wide), s.config.PolicySecretsOwnNamespaceOnly)
}

// initialOf are the Secrets that policies refer to, those of the oldest policy first. own leaves out what is of other namespaces.
func initialOf(all []*networkpolicy.Policy, own bool) (to []secretref.Object) {
	slices.SortFunc(all, func(a, b *networkpolicy.Policy) int {
		return cmp.Or(cmp.Compare(a.CreationTimestamp, b.CreationTimestamp), cmp.Compare(a.Namespace.String(), b.Namespace.String()), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range all {
		keys, _, _ := p.Secrets()
		kept, _ := bounded(secretsOf(keys))
		for _, of := range kept {
			if by := p.Namespace.String(); !own || by == "" || by == of.Namespace {
				to = append(to, of)
			}
		}
	}
	return to
}

// Complete implements secretref.Source.
func (s *policySource) Complete() error {
	return errors.Join(secretref.AllComplete(s.policies, s.clusterwide), s.unknown.err("network policies"))
}

// Follow implements secretref.Source.
func (s *policySource) Follow(ctx context.Context, r secretref.Recorder) {
	reconcile.RunTogether(ctx, []func(context.Context){
		func(ctx context.Context) {
			s.policies.Follow(ctx, func(ch stream.Change[networkpolicy.Policy]) {
				s.changed(ch.Object, ch.Kind == stream.Delete, r)
			})
		},
		func(ctx context.Context) {
			s.clusterwide.Follow(ctx, func(ch stream.Change[networkpolicy.ClusterwidePolicy]) {
				s.changed((*networkpolicy.Policy)(ch.Object), ch.Kind == stream.Delete, r)
			})
		},
	})
}

// changed records the references of a policy. What cannot be decoded keeps those that it had.
func (s *policySource) changed(p *networkpolicy.Policy, deleted bool, r secretref.Recorder) {
	about := corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: networkpolicy.Policies.Name(), Namespace: p.Namespace.String(), Name: p.Name, UID: p.UID.API(),
	}
	if about.Namespace == "" {
		about.Kind = networkpolicy.ClusterwidePolicies.Name()
	}
	keys, others, unknown := p.Secrets()
	s.unknown.set(slim.Key{Namespace: about.Namespace, Name: about.Name}, unknown && !deleted)
	switch {
	case deleted:
		r.Set(about)
	case !unknown:
		r.SetFirst(about, others, secretsOf(keys)...)
	}
}

func secretsOf(keys []slim.Key) (all []secretref.Object) {
	for _, key := range keys {
		all = append(all, secretref.Object{Kind: secretref.Secret, Key: key})
	}
	return all
}

// undecoded are objects that may refer to more than is known.
type undecoded struct {
	mu   sync.Mutex
	keys map[slim.Key]bool
}

func (u *undecoded) set(key slim.Key, is bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !is {
		delete(u.keys, key)
		return
	}
	if u.keys == nil {
		u.keys = map[slim.Key]bool{}
	}
	u.keys[key] = true
}

func (u *undecoded) err(kind string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key := range u.keys {
		return fmt.Errorf("rules of %d %s cannot be decoded, one is %s: repair or delete it", len(u.keys), kind, key)
	}
	return nil
}
