// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"cmp"
	"context"
	"encoding/json"
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

// configurationKind has what configurations of agents name.
var configurationKind = stream.Custom[configuration](v2.CiliumEnvoyConfigResource).OfKind("CiliumEnvoyConfig")

// configuration is what this duty reads of a CiliumEnvoyConfig.
type configuration struct {
	configurationMeta `json:"metadata"`
	slim.Undecoded    `json:"-"`
	Spec              secretNames `json:"spec"`
}

type configurationMeta struct {
	slim.Meta
	Controller slim.Owner `json:"ownerReferences"`
}

// secretNames are the names in a spec that may be those of secrets, namespace/name.
type secretNames []string

// UnmarshalJSON implements json.Unmarshaler.
func (n *secretNames) UnmarshalJSON(text []byte) error {
	var spec any
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	*n = slices.Compact(slices.Sorted(slices.Values(namesIn(spec, nil))))
	return nil
}

// namesIn appends the names in a value that have one slash.
func namesIn(value any, found []string) []string {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			found = namesIn(item, found)
		}
	case map[string]any:
		for key, field := range v {
			if name, isText := field.(string); isText && key == "name" && strings.Count(name, "/") == 1 {
				found = append(found, name)
			}
			found = namesIn(field, found)
		}
	}
	return found
}

// configurationSource reports, where Gateways or Ingresses are not served or not copied, the certificates that their configurations name and that
// have a copy: agents go on to serve them. It pins all names that these have, since what they mean by a name without a copy is not known (SEC-18).
type configurationSource struct {
	name           string
	namespace      string // of the copies
	counts         func(*configuration) bool
	names          *secretref.Names
	configurations *secretref.Watch[configuration]

	mu     sync.Mutex
	pinned map[slim.Key][]string // by configuration
}

// configurationSources are those that are on. Others are nil.
type configurationSources struct {
	cell.Out

	OfGateways  secretref.Source `group:"references to secrets"`
	OfIngresses secretref.Source `group:"references to secrets"`
}

func newConfigurationSources(c secretref.Config, e envoy.Config, shared cluster.Config, n *secretref.Names, s stream.Resource[configuration]) (out configurationSources) {
	newSource := func(name, namespace string, counts func(*configuration) bool) secretref.Source {
		return &configurationSource{
			name: name, namespace: namespace, counts: counts, names: n, configurations: secretref.NewWatch(s, "spec").Optional(), pinned: map[slim.Key][]string{},
		}
	}
	if secretref.KeptOfGateways(c, e, shared) {
		out.OfGateways = newSource("configurations", e.GatewayAPISecretsNamespace, isOfGateway)
	}
	if secretref.KeptOfIngresses(c, e, shared) {
		own := cmp.Or(shared.K8sNamespace, "kube-system")
		out.OfIngresses = newSource("configurations-of-ingresses", e.IngressSecretsNamespace, func(c *configuration) bool { return isOfIngresses(c, own) })
	}
	return out
}

func isOfGateway(c *configuration) bool { return c.Controller.Kind() == "Gateway" }

// isOfIngresses reports whether a configuration is that of an Ingress, or one without a controller in the namespace where Ingresses share one.
func isOfIngresses(c *configuration, own string) bool {
	return c.Controller.Kind() == "Ingress" || c.Controller.IsZero() && c.Namespace.String() == own
}

// Name implements secretref.Source.
func (s *configurationSource) Name() string { return s.name }

// Namespace implements secretref.Source.
func (s *configurationSource) Namespace() string { return s.namespace }

// Kind implements secretref.Source.
func (*configurationSource) Kind() secretref.Kind { return secretref.Secret }

// Complete implements secretref.Source.
func (s *configurationSource) Complete() error { return s.configurations.Complete() }

// Follow implements secretref.Source.
func (s *configurationSource) Follow(ctx context.Context, r secretref.Recorder) {
	s.configurations.Follow(ctx, func(ch stream.Change[configuration]) { s.changed(ch, r) })
}

// pinLimit is how long names wait for the configurations that exist: without them copies are made all the same.
const pinLimit = 5 * time.Second

// PinAll implements secretref.Pins.
func (s *configurationSource) PinAll(ctx context.Context) {
	s.configurations.Initial(ctx, pinLimit, func(c *configuration) { s.pin(c.Key(), s.copyNames(c)) })
}

// changed records what a configuration names. One that cannot be decoded keeps what it had.
func (s *configurationSource) changed(ch stream.Change[configuration], r secretref.Recorder) {
	c := ch.Object
	from := corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: configurationKind.Name(), Namespace: c.Namespace.String(), Name: c.Name, UID: c.UID.API(),
	}
	switch {
	case ch.Kind == stream.Delete:
		s.pin(ch.Key, nil)
		r.Set(from)
	case !c.CannotDecode("spec"):
		names := s.copyNames(c)
		s.pin(ch.Key, names)
		r.Set(from, s.copied(names)...)
	}
}

// copyNames are the names of copies that a configuration has, if it counts.
func (s *configurationSource) copyNames(c *configuration) (names []string) {
	if c.CannotDecode("spec") || !s.counts(c) {
		return nil
	}
	for _, name := range c.Spec {
		if copyName, ours := strings.CutPrefix(name, s.namespace+"/"); ours {
			names = append(names, copyName)
		}
	}
	return names
}

// pin replaces the names that a configuration pins.
func (s *configurationSource) pin(of slim.Key, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.names.Pin(s.namespace, name, of.Namespace)
	}
	for _, name := range s.pinned[of] {
		s.names.Unpin(s.namespace, name, of.Namespace)
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
