// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// input is what a translation depends on of an Ingress: all but its status.
type input struct {
	uid         slim.UID
	generation  int64
	annotations slim.Labels
	deleted     bool
	cut         slim.Cut
}

func inputOf(i *ingress) input {
	return input{i.UID, i.Generation, i.Annotations.Labels, !i.DeletionTimestamp.IsZero(), i.Cut}
}

// ingressChanged is the Ingress, and what Ingresses share if more than the status has changed.
func (c *controller) ingressChanged(ch stream.Change[ingress]) []slim.Key {
	was, known := c.inputs[ch.Key]
	now := inputOf(ch.Object)
	if ch.Kind == stream.Delete || !known || was != now {
		c.owners.forget()
	}
	if ch.Kind == stream.Delete {
		delete(c.inputs, ch.Key)
		return append(c.hostPortsChanged(), ch.Key, sharedKey)
	}
	c.inputs[ch.Key] = now
	if known && was == now {
		return []slim.Key{ch.Key}
	}
	return append(c.hostPortsChanged(), ch.Key, sharedKey)
}

// classChanged is every Ingress without a class, and those at ports of the nodes which these may have now.
func (c *controller) classChanged(stream.Change[ingressClass]) []slim.Key {
	keys := append(c.hostPortsChanged(), sharedKey)
	for i := range c.ingresses.All() {
		if isManaged(i, true) != isManaged(i, false) {
			keys = append(keys, i.Key())
		}
	}
	return keys
}

// serviceChanged is the Ingress of a Service, all that share it, and those that refer to one that comes, goes, or has other ports.
func (c *controller) serviceChanged(ch stream.Change[service]) (keys []slim.Key) {
	if owner := ch.Object.Controller; owner.Kind() == "Ingress" {
		keys = append(keys, slim.Key{Namespace: ch.Key.Namespace, Name: owner.Name()})
	} else if strings.HasPrefix(ch.Key.Name, namePrefix) {
		keys = append(keys, c.inPlaceOf(ch.Key, func(i slim.Key) bool { return serviceKey(i) == ch.Key })...)
	}
	if ch.Key == c.sharedService() {
		for i := range c.ingresses.All() {
			keys = append(keys, i.Key())
		}
	}
	had, was := c.known[ch.Key]
	if is := ch.Kind == stream.Upsert; was != is || is && !slices.Equal(had, ch.Object.Spec.Ports) {
		if delete(c.known, ch.Key); is {
			c.known[ch.Key] = ch.Object.Spec.Ports
		}
		for i := range stream.ByIndex(c.ingresses, byBackend, ch.Key) {
			keys = append(keys, i.Key(), sharedKey)
		}
	}
	return keys
}

func (c *controller) sliceChanged(ch stream.Change[envoyres.Slice[duty]]) []slim.Key {
	return ingressOf(&ch.Object.PlaceholderMeta)
}

func (c *controller) endpointsChanged(ch stream.Change[envoyres.Endpoints[duty]]) []slim.Key {
	return ingressOf(&ch.Object.PlaceholderMeta)
}

// ingressOf is the Ingress of a placeholder.
func ingressOf(m *envoyres.PlaceholderMeta) []slim.Key {
	if owner := m.Controller; owner.Kind() == "Ingress" {
		return []slim.Key{{Namespace: m.Namespace.String(), Name: owner.Name()}}
	}
	return nil
}

// configChanged is the Ingress of a CiliumEnvoyConfig, or what Ingresses share, and all Ingresses if it has other ports of the nodes than before.
func (c *controller) configChanged(ch stream.Change[envoyres.Object]) (keys []slim.Key) {
	if c.hostPorts.Apply(ch) {
		keys = c.hostPortsChanged()
	}
	if ch.Key == c.sharedService() {
		return append(keys, sharedKey)
	}
	if owner := ch.Object.Controller; owner.Kind() == "Ingress" {
		return append(keys, slim.Key{Namespace: ch.Key.Namespace, Name: owner.Name()})
	}
	if len(keys) > 0 {
		return keys
	}
	if strings.HasPrefix(ch.Key.Name, namePrefix) {
		return c.inPlaceOf(ch.Key, func(i slim.Key) bool { return configNames(i).Has(ch.Key) })
	}
	return nil
}

// inPlaceOf are the Ingresses whose object another one may be in the place of.
func (c *controller) inPlaceOf(key slim.Key, is func(ingress slim.Key) bool) (keys []slim.Key) {
	for i := range c.ingresses.All() {
		if i.Namespace.String() == key.Namespace && is(i.Key()) {
			keys = append(keys, i.Key())
		}
	}
	return keys
}

// nameOf is the key of an Ingress in a translation.
func nameOf(key slim.Key) envoy.Name { return envoy.Name{Namespace: key.Namespace, Name: key.Name} }
