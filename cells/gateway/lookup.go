// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// asker answers questions for the Reconcile of a key. It sets waiting if an answer is not known yet.
func (c *controller) asker(key slim.Key, waiting *bool) (ask asker) {
	ask = func(q question) answer {
		switch q.about {
		case aboutPort:
			return c.askPort(q)
		case aboutImport:
			return c.askImport(q, key, waiting)
		case aboutNamespace:
			n, exists := c.namespaces.Get(q.key)
			if !exists {
				return answer{}
			}
			return answer{exists: true, labels: n.Labels}
		case aboutGrant:
			return answer{exists: c.isGranted(q)}
		case aboutSecret:
			s, exists := c.secrets.Get(q.key)
			return answer{exists: exists, ok: exists && s.Data.Valid}
		case aboutTLS:
			return c.askTLS(q, ask)
		case aboutKind:
			return answer{exists: c.servedOf(q.toKind).routeStore != nil}
		case aboutAuthority:
			return c.askAuthority(q, key, waiting)
		case aboutFleet:
			return c.askFleet(key, waiting)
		}
		return answer{}
	}
	return ask
}

// askPort answers for a port of a Service. A Service that cannot be decoded has all ports.
func (c *controller) askPort(q question) answer {
	s, exists := c.services.Get(q.key)
	if !exists {
		hidden := c.services.Hides(q.key)
		return answer{exists: hidden, ok: hidden}
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p slim.ServicePort) bool {
		return p.Port == q.port && (q.protocol == "" || p.Protocol.String() == q.protocol)
	})
	if i < 0 {
		return answer{exists: true}
	}
	return answer{exists: true, ok: true, appProtocol: s.Spec.Ports[i].AppProtocol.String()}
}

func (c *controller) askImport(q question, key slim.Key, waiting *bool) answer {
	if !c.isInstalled(imports.Resource().GroupResource()) {
		c.imports.Drop(key)
		return answer{noCRD: true}
	}
	known := c.imports.Need(key)
	if known == nil {
		*waiting = true
		return answer{}
	}
	i, exists := known.Get(q.key)
	if !exists {
		return answer{}
	}
	return answer{exists: true, target: slim.Key{Namespace: q.key.Namespace, Name: i.Annotations.Get(derivedAnnotation)}}
}

// isGranted reports whether a ReferenceGrant allows a reference to an object of its namespace.
func (c *controller) isGranted(q question) bool {
	group := ""
	if q.toKind == kindImport {
		group = importGroup
	}
	for g := range stream.ByIndex(c.grants, grantsByNamespace, q.key.Namespace) {
		if allows(g, q, group) {
			return true
		}
	}
	return false
}

func (c *controller) isInstalled(of schema.GroupResource) bool {
	_, exists := c.installed.Get(slim.Key{Name: of.String()})
	return exists
}

// servedDefinition is what a CustomResourceDefinition says of its versions.
type servedDefinition struct {
	revision slim.Revision
	versions []string
	// features is the type of the items of status.supportedFeatures in the schema of v1, "" if there is no such field.
	features string
}

// definition reads a CustomResourceDefinition when it has changed. Nothing is served of one that does not exist.
func (c *controller) definition(ctx context.Context, of schema.GroupResource) (servedDefinition, error) {
	meta, exists := c.installed.Get(slim.Key{Name: of.String()})
	if !exists {
		return servedDefinition{}, nil
	}
	c.mu.Lock()
	was := c.served[meta.Name]
	c.mu.Unlock()
	if was.revision == meta.ResourceVersion {
		return was, nil
	}
	ref := k8s.Ref{Resource: definitions.Resource(), Name: meta.Name}
	crd, err := c.Client.Get(ctx, ref)
	if k8s.IsNotFound(err, ref) {
		return servedDefinition{}, reconcile.Recheck()
	}
	if err != nil {
		return servedDefinition{}, fmt.Errorf("reading %s: %w", ref, err)
	}
	now := readDefinition(crd)
	now.revision = meta.ResourceVersion
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served[meta.Name] = now
	return now, nil
}

func readDefinition(crd *unstructured.Unstructured) (d servedDefinition) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		fields, _ := v.(map[string]any)
		name, _ := fields["name"].(string)
		if served, _ := fields["served"].(bool); !served {
			continue
		}
		d.versions = append(d.versions, name)
		if name == "v1" {
			d.features, _, _ = unstructured.NestedString(fields, "schema", "openAPIV3Schema", "properties", "status", "properties", "supportedFeatures", "items", "type")
		}
	}
	return d
}
