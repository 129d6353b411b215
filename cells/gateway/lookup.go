// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/skep-operator/skep/cells/gateway/internal/route"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// lookup answers what is asked for the Reconcile of a key. It sets waiting if an answer is not known yet.
func (c *controller) lookup(key slim.Key, waiting *bool) (lookup route.Lookup) {
	lookup = func(q route.Query) route.Answer {
		switch q.About {
		case route.AboutPort:
			return c.askPort(q)
		case route.AboutImport:
			return c.askImport(q, key, waiting)
		case route.AboutNamespace:
			n, exists := c.namespaces.Get(q.Key)
			if !exists {
				return route.Answer{}
			}
			return route.Answer{Exists: true, Labels: n.Labels}
		case route.AboutGrant:
			return route.Answer{Exists: c.isGranted(q)}
		case route.AboutSecret:
			s, exists := c.secrets.Get(q.Key)
			return route.Answer{Exists: exists, OK: exists && s.Data.Valid}
		case route.AboutTLS:
			return c.askTLS(q, lookup)
		case route.AboutKind:
			return route.Answer{Exists: c.servedOf(q.ToKind).routeStore != nil}
		case route.AboutAuthority:
			return c.askAuthority(q, key, waiting)
		case route.AboutFleet:
			return c.askFleet(key, waiting)
		case route.AboutPrograms:
			return route.Answer{Number: int64(c.Envoy.MaxRegexProgramSize)}
		}
		return route.Answer{}
	}
	return lookup
}

// askPort answers for a port of a Service. A Service that cannot be decoded, or is too large, has all ports.
func (c *controller) askPort(q route.Query) route.Answer {
	s, exists := c.services.Get(q.Key)
	if !exists {
		hidden := c.services.Hides(q.Key)
		return route.Answer{Exists: hidden, OK: hidden}
	}
	i := portAsked(s, q)
	if i < 0 {
		return route.Answer{Exists: true, OK: s.hidesPorts()}
	}
	return route.Answer{Exists: true, OK: true, AppProtocol: s.Spec.Ports[i].AppProtocol.String()}
}

// portAsked is the index of the port of a Service that is asked about, -1 if there is none: one number may be that of a port of TCP and one of UDP.
func portAsked(s *service, q route.Query) int {
	return slices.IndexFunc(s.Spec.Ports, func(p slim.ServicePort) bool { return p.Port == q.Port && p.Protocol.String() == string(q.Protocol) })
}

func (c *controller) askImport(q route.Query, key slim.Key, waiting *bool) route.Answer {
	if !c.isInstalled(imports.Resource().GroupResource()) {
		c.imports.Drop(key)
		c.setImports(nil)
		return route.Answer{NoCRD: true}
	}
	known := c.imports.Need(key)
	if known == nil {
		*waiting = true
		return route.Answer{}
	}
	c.setImports(known)
	i, exists := known.Get(q.Key)
	if !exists {
		return route.Answer{}
	}
	return route.Answer{Exists: true, Target: slim.Key{Namespace: q.Key.Namespace, Name: i.Annotations.Get(route.DerivedAnnotation)}}
}

// isGranted reports whether a ReferenceGrant allows a reference to an object of its namespace.
func (c *controller) isGranted(q route.Query) bool {
	for g := range stream.ByIndex(c.grants, grantsByNamespace, q.Key.Namespace) {
		if q.IsAllowedBy(g.Spec) {
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
