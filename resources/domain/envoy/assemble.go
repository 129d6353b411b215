// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// compareHosts sorts virtual hosts by name.
func compareHosts(a, b hostKey) int {
	return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.hostname, b.hostname), cmp.Compare(a.port, b.port))
}

// withParts encodes a resource with a list of parts that are encoded already.
func withParts(m message, field string, parts []json.RawMessage) (json.RawMessage, error) {
	text, err := encodeAny(m)
	if err != nil || len(parts) == 0 {
		return text, err
	}
	return withList(text, field, parts)
}

// routeTable encodes a route table. ignorePort has Envoy compare hosts without their ports: a wildcard has no domain with any port.
func routeTable(name string, hosts []json.RawMessage, ignorePort bool) (json.RawMessage, error) {
	return withParts(&routev3.RouteConfiguration{Name: name, IgnorePortInHostMatching: ignorePort}, "virtualHosts", hosts)
}

// clusterKey is all that a cluster depends on, beside the options.
type clusterKey struct {
	name, service string
	protocol      upstreamHTTP
	tls           string // the text of its UpstreamTLS
	authority     string // the name of the copy
}

// usage is the backends that are referred to, by the name of the cluster.
type usage map[string]usedCluster

type usedCluster struct {
	backend  Backend
	protocol upstreamHTTP
}

// add adds backends of which no HTTP is known.
func (u usage) add(all ...Backend) {
	for _, b := range all {
		if _, exists := u[b.cluster()]; !exists {
			u[b.cluster()] = usedCluster{backend: b}
		}
	}
}

// addHTTP adds a backend of a route.
func (u usage) addHTTP(o Options, b Backend, isGRPC bool) {
	protocol := downstreamHTTP
	switch {
	case isGRPC, o.AppProtocol && b.AppProtocol == "kubernetes.io/h2c":
		protocol = http2
	case o.AppProtocol:
		protocol = http1
	}
	u.put(b.cluster(), usedCluster{b, protocol})
}

// put adds a cluster. If several routes differ, the latest version of HTTP is spoken.
func (u usage) put(name string, c usedCluster) {
	u[name] = usedCluster{c.backend, max(c.protocol, u[name].protocol)}
}

// join adds what another part refers to.
func (u usage) join(other usage) {
	for name, c := range other {
		u.put(name, c)
	}
}

// encodeClusters returns the clusters in the order of their names.
func (t *Translator) encodeClusters(o Options, used usage, left *budget) (all []json.RawMessage, err error) {
	for _, name := range slices.Sorted(maps.Keys(used)) {
		b := used[name].backend
		key := clusterKey{name: name, service: b.Namespace + "/" + b.Name.Name + ":" + b.Port, protocol: used[name].protocol, tls: b.TLS.text()}
		if b.TLS != nil {
			key.authority = o.authorityName(b.TLS.Authority)
		}
		text, err := t.clusters.get(key, always, func() (json.RawMessage, error) {
			c := o.Connections.cluster(key.name, key.service, key.protocol)
			c.TransportSocket = o.upstreamSocket(b.TLS)
			return encodeAny(c)
		})
		if err == nil {
			err = left.spend(len(text))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, nil
}

// services are the Services of the backends, with their ports.
func (u usage) services() (all []v2.EnvoyBackendService) {
	ports := map[Name][]string{}
	for _, c := range u {
		ports[c.backend.Name] = append(ports[c.backend.Name], c.backend.Port)
	}
	names := slices.SortedFunc(maps.Keys(ports), func(a, b Name) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, n := range names {
		slices.Sort(ports[n])
		all = append(all, v2.EnvoyBackendService{Name: n.Name, Namespace: n.Namespace, Ports: slices.Compact(ports[n])})
	}
	return all
}
