// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// configurationSource pins the names of copies that configurations of Gateways or Ingresses have: as long as one has a name, no other object is given that,
// whatever becomes of the Gateway or the Ingress (SEC-14). Where these are not served or not copied, it reports the certificates that have a copy: agents go
// on to serve them (SEC-18).
type configurationSource struct {
	name           string
	namespace      string // of the copies
	counts         func(*envoy.Object) bool
	isLeft         bool   // nothing writes the configurations anew
	own            string // namespace of the configuration that Ingresses share
	names          *secretref.Names
	configurations configurationWatch

	mu     sync.Mutex
	pinned map[slim.Key][]string // by configuration
	seen   map[slim.Key]bool     // those that Follow has shown, until all were
}

// configurationWatch is a secretref.Watch of configurations.
type configurationWatch interface {
	Follow(ctx context.Context, changed func(stream.Change[envoy.Object]), synced ...func())
	Initial(ctx context.Context, limit time.Duration, each func(*envoy.Object))
	Complete() error
}

// left is a configuration where neither Gateways nor Ingresses are served: it may never have had a definition, which is no fault there.
type left envoy.Object

var leftKind = stream.Custom[left](v2.CiliumEnvoyConfigResource).OfKind("CiliumEnvoyConfig")

// leftWatch is a watch of these.
type leftWatch struct{ *secretref.Watch[left] }

// Follow implements configurationWatch.
func (w leftWatch) Follow(ctx context.Context, changed func(stream.Change[envoy.Object]), synced ...func()) {
	w.Watch.Follow(ctx, func(ch stream.Change[left]) {
		changed(stream.Change[envoy.Object]{Kind: ch.Kind, Key: ch.Key, Object: (*envoy.Object)(ch.Object)})
	}, synced...)
}

// Initial implements configurationWatch.
func (w leftWatch) Initial(ctx context.Context, limit time.Duration, each func(*envoy.Object)) {
	w.Watch.Initial(ctx, limit, func(c *left) { each((*envoy.Object)(c)) })
}

// configurationSources are those that are on. Others are nil.
type configurationSources struct {
	cell.Out

	OfGateways  secretref.Source `group:"references to secrets"`
	OfIngresses secretref.Source `group:"references to secrets"`
}

func newConfigurationSources(c secretref.Config, e envoy.Config, shared cluster.Config, n *secretref.Names, s stream.Resource[envoy.Object]) configurationSources {
	return sourcesOf(c, e, shared, n, func() configurationWatch { return secretref.NewWatch(s, "spec").Optional() })
}

func newLeftSources(c secretref.Config, e envoy.Config, shared cluster.Config, n *secretref.Names, s stream.Resource[left]) configurationSources {
	return sourcesOf(c, e, shared, n, func() configurationWatch { return leftWatch{secretref.NewWatch(s, "spec").Optional()} })
}

func sourcesOf(c secretref.Config, e envoy.Config, shared cluster.Config, n *secretref.Names, newWatch func() configurationWatch) (out configurationSources) {
	own := cmp.Or(shared.K8sNamespace, "kube-system")
	newSource := func(name, namespace string, isLeft bool, counts func(*envoy.Object) bool) secretref.Source {
		if !secretref.CopiesTo(namespace, c, e, shared) {
			return nil
		}
		return &configurationSource{
			name: name, namespace: namespace, counts: counts, isLeft: isLeft, own: own, names: n, configurations: newWatch(), pinned: map[slim.Key][]string{},
		}
	}
	out.OfGateways = newSource("configurations", e.GatewayAPISecretsNamespace, secretref.KeptOfGateways(c, e, shared), isOfGateway)
	out.OfIngresses = newSource("configurations-of-ingresses", e.IngressSecretsNamespace, secretref.KeptOfIngresses(c, e, shared), func(o *envoy.Object) bool { return isOfIngresses(o, own) })
	return out
}

func isOfGateway(c *envoy.Object) bool { return c.Controller.Kind() == "Gateway" }

// isOfIngresses reports whether a configuration is that of an Ingress, or one without a controller in the namespace where Ingresses share one.
func isOfIngresses(c *envoy.Object, own string) bool {
	return c.Controller.Kind() == "Ingress" || c.Controller.IsZero() && c.Namespace.String() == own
}

// Name implements secretref.Source.
func (s *configurationSource) Name() string { return s.name }

// Namespace implements secretref.Source.
func (s *configurationSource) Namespace() string { return s.namespace }

// Kind implements secretref.Source.
func (*configurationSource) Kind() secretref.Kind { return secretref.Secret }

// Complete implements secretref.Source.
func (s *configurationSource) Complete() error {
	if !s.isLeft {
		return nil
	}
	return s.configurations.Complete()
}

// Follow implements secretref.Source.
func (s *configurationSource) Follow(ctx context.Context, r secretref.Recorder) {
	s.mu.Lock()
	s.seen = map[slim.Key]bool{}
	s.mu.Unlock()
	s.configurations.Follow(ctx, func(ch stream.Change[envoy.Object]) { s.changed(ch, r) }, s.unpinOthers)
}

// unpinOthers is called when Follow has shown all configurations: those that PinAll had seen, and that went before, pin nothing any more.
func (s *configurationSource) unpinOthers() {
	s.mu.Lock()
	gone := slices.DeleteFunc(slices.Collect(maps.Keys(s.pinned)), func(key slim.Key) bool { return s.seen == nil || s.seen[key] })
	s.seen = nil
	s.mu.Unlock()
	for _, key := range gone {
		s.pin(key, nil)
	}
}

// pinLimit is how long names wait for the configurations that exist: without them copies are made all the same.
const pinLimit = 5 * time.Second

// PinAll implements secretref.Pins.
func (s *configurationSource) PinAll(ctx context.Context) {
	s.configurations.Initial(ctx, pinLimit, func(c *envoy.Object) { s.pin(c.Key(), s.copyNames(c)) })
}

// changed records what a configuration names. One that cannot be decoded keeps what it had.
func (s *configurationSource) changed(ch stream.Change[envoy.Object], r secretref.Recorder) {
	s.mu.Lock()
	if s.seen != nil {
		s.seen[ch.Key] = true
	}
	s.mu.Unlock()
	c := ch.Object
	from := corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: envoy.Objects.Name(), Namespace: c.Namespace.String(), Name: c.Name, UID: c.UID.API(),
	}
	switch {
	case ch.Kind == stream.Delete:
		s.pin(ch.Key, nil)
		if s.isLeft {
			r.Set(from)
		}
	case !c.CannotDecode("spec"):
		names := s.copyNames(c)
		s.pin(ch.Key, names)
		if s.isLeft {
			r.Set(from, s.copied(names)...)
		}
	}
}

// copyNames are the names of copies that a configuration has, if it counts.
func (s *configurationSource) copyNames(c *envoy.Object) (names []string) {
	if c.CannotDecode("spec") || !s.counts(c) {
		return nil
	}
	for _, name := range c.Spec.Secrets {
		if copyName, ours := strings.CutPrefix(name, s.namespace+"/"); ours {
			names = append(names, copyName)
		}
	}
	return names
}

// pin replaces the names that a configuration pins. The one that Ingresses share has its names as long as a leader writes it, and those of the next one
// are given anew: it names Secrets of all namespaces, and any of these may be the one that a name without a copy means.
func (s *configurationSource) pin(of slim.Key, names []string) {
	pin := func(name string) { s.names.Pin(s.namespace, name, of.Namespace) }
	unpin := func(name string) { s.names.Unpin(s.namespace, name, of.Namespace) }
	if !s.isLeft && of.Namespace == s.own {
		pin, unpin = func(name string) { s.names.Keep(s.namespace, name) }, func(name string) { s.names.Unkeep(s.namespace, name) }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		pin(name)
	}
	for _, name := range s.pinned[of] {
		unpin(name)
	}
	if s.pinned[of] = names; len(names) == 0 {
		delete(s.pinned, of)
	}
}

// copied are the objects whose copies have the names.
func (s *configurationSource) copied(names []string) (to []secretref.Object) {
	for _, name := range names {
		if of, isCopy := s.names.Owner(s.namespace, name); isCopy {
			to = append(to, of)
		}
	}
	return to
}
