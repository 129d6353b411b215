// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// secretSource reports the TLS secrets of Ingresses that are managed, and the default one.
type secretSource struct {
	config    envoyres.Config
	ingresses *secretref.Watch[ingress]
	classes   *secretref.Watch[ingressClass]

	mu        sync.Mutex
	all       map[slim.Key]*ingress
	byDefault bool
	hold      *time.Timer // of a class that is away, nil if it is not
}

func newSecretSource(c envoyres.Config, ingresses stream.Resource[ingress], classes stream.Resource[ingressClass]) secretref.SourceOut {
	return secretref.SourceOut{Source: &secretSource{
		config: c, ingresses: secretref.NewWatch(ingresses), classes: secretref.NewWatch(classes), all: map[slim.Key]*ingress{},
	}}
}

// Name implements secretref.Source.
func (*secretSource) Name() string { return "ingresses" }

// Namespace implements secretref.Source.
func (s *secretSource) Namespace() string { return s.config.IngressSecretsNamespace }

// Kind implements secretref.Source.
func (*secretSource) Kind() secretref.Kind { return secretref.Secret }

// Complete implements secretref.Source.
func (s *secretSource) Complete() error { return secretref.AllComplete(s.ingresses, s.classes) }

// Follow implements secretref.Source.
func (s *secretSource) Follow(ctx context.Context, r secretref.Recorder) {
	if name, ok := s.config.DefaultSecret(); ok {
		about := corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: name.Namespace, Name: name.Name}
		r.Set(about, secretref.Object{Kind: secretref.Secret, Key: slim.Key(name)})
	}
	defer s.stopHold()
	reconcile.RunTogether(ctx, []func(context.Context){
		func(ctx context.Context) {
			s.classes.Follow(ctx, func(ch stream.Change[ingressClass]) { s.classChanged(ctx, ch, r) })
		},
		func(ctx context.Context) {
			s.ingresses.Follow(ctx, func(ch stream.Change[ingress]) { s.ingressChanged(ch, r) })
		},
	})
}

func (s *secretSource) stopHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold != nil {
		s.hold.Stop()
	}
}

// classChanged records the references of Ingresses without a class, if they are others: when a class that is deleted does not come again.
func (s *secretSource) classChanged(ctx context.Context, ch stream.Change[ingressClass], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold != nil {
		s.hold.Stop()
		s.hold = nil
	}
	if ch.Kind != stream.Delete {
		s.setDefault(isDefaultClass(ch.Object), r)
		return
	}
	var hold *time.Timer
	hold = time.AfterFunc(classHold, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hold == hold && ctx.Err() == nil {
			s.setDefault(false, r)
		}
	})
	s.hold = hold
}

// setDefault records the references of Ingresses if those without a class are managed, and were not, or the other way round. The caller has
// the lock.
func (s *secretSource) setDefault(byDefault bool, r secretref.Recorder) {
	if byDefault == s.byDefault {
		return
	}
	s.byDefault = byDefault
	for _, i := range s.all {
		s.record(i, r)
	}
}

func (s *secretSource) ingressChanged(ch stream.Change[ingress], r secretref.Recorder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.Kind == stream.Delete {
		delete(s.all, ch.Key)
		r.Set(aboutIngress(ch.Object))
		return
	}
	s.all[ch.Key] = ch.Object
	s.record(ch.Object, r)
}

// record records the references of an Ingress. One that is too large keeps those that it had. The caller has the lock.
func (s *secretSource) record(i *ingress, r secretref.Recorder) {
	if i.IsCut() && isManaged(i, s.byDefault) {
		r.SetUnknown(aboutIngress(i))
		return
	}
	r.Set(aboutIngress(i), secretsOf(i, s.byDefault)...)
}

// secretsOf are the Secrets that an Ingress refers to, none of one that is not managed.
func secretsOf(i *ingress, byDefault bool) (all []secretref.Object) {
	if !isManaged(i, byDefault) {
		return nil
	}
	for _, tls := range i.Spec.TLS {
		if tls.SecretName != "" {
			all = append(all, secretref.Object{Kind: secretref.Secret, Key: slim.Key{Namespace: i.Namespace.String(), Name: tls.SecretName}})
		}
	}
	return all
}
