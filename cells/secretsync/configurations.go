// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
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

// configurationSource reports, where Gateways are not served, the certificates that the configurations of Gateways name and that have a copy:
// agents go on to serve them.
type configurationSource struct {
	config         envoy.Config
	names          *secretref.Names
	configurations *secretref.Watch[configuration]
}

func newConfigurationSource(c envoy.Config, n *secretref.Names, s stream.Resource[configuration]) secretref.SourceOut {
	return secretref.SourceOut{Source: &configurationSource{c, n, secretref.NewWatch(s, "spec").Optional()}}
}

// Name implements secretref.Source.
func (*configurationSource) Name() string { return "configurations" }

// Namespace implements secretref.Source.
func (s *configurationSource) Namespace() string { return s.config.GatewayAPISecretsNamespace }

// Kind implements secretref.Source.
func (*configurationSource) Kind() secretref.Kind { return secretref.Secret }

// Complete implements secretref.Source.
func (s *configurationSource) Complete() error { return s.configurations.Complete() }

// Follow implements secretref.Source.
func (s *configurationSource) Follow(ctx context.Context, r secretref.Recorder) {
	s.configurations.Follow(ctx, func(ch stream.Change[configuration]) { s.changed(ch, r) })
}

// changed records what a configuration names. One that cannot be decoded keeps what it had.
func (s *configurationSource) changed(ch stream.Change[configuration], r secretref.Recorder) {
	c := ch.Object
	from := corev1.ObjectReference{
		APIVersion: v2.SchemeGroupVersion.String(), Kind: configurationKind.Name(), Namespace: c.Namespace.String(), Name: c.Name, UID: c.UID.API(),
	}
	switch {
	case ch.Kind == stream.Delete:
		r.Set(from)
	case !c.CannotDecode("spec"):
		r.Set(from, s.copied(c)...)
	}
}

// copied are the objects whose copies the configuration of a Gateway names.
func (s *configurationSource) copied(c *configuration) (to []secretref.Object) {
	if c.Controller.Kind() != "Gateway" {
		return nil
	}
	for _, name := range c.Spec {
		copyName, ours := strings.CutPrefix(name, s.Namespace()+"/")
		if of, isCopy := s.names.Owner(s.Namespace(), copyName); ours && isCopy {
			to = append(to, of)
		}
	}
	return to
}
