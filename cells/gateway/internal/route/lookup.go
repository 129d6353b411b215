// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package route

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// Query is what planning asks of the cluster. It is comparable.
type Query struct {
	About    Subject
	Key      slim.Key
	Port     int32           // of a Service
	Protocol corev1.Protocol // of the port
	// From is the object that refers to another one, of a grant. Its name does not matter.
	FromKind, FromNamespace string
	ToKind                  string
}

// Subject is what a Query is about.
type Subject int

const (
	AboutPort      Subject = iota // a port of a Service
	AboutImport                   // the Service of a ServiceImport
	AboutNamespace                // the labels of a Namespace
	AboutGrant                    // whether a ReferenceGrant allows a reference
	AboutSecret                   // a TLS secret
	AboutTLS                      // how a port of a Service is spoken to
	AboutKind                     // whether routes of a kind, ToKind, are served
	AboutAuthority                // a ConfigMap with certificates of authorities
	AboutFleet                    // whether the Envoy of all agents asks servers about requests
	AboutPrograms                 // how large programs of regular expressions Envoy takes
)

// Answer is the answer to a Query.
type Answer struct {
	// Exists says that there is the object, the grant, or a policy.
	Exists bool
	// OK says that a Service has the port, or that a secret, a ConfigMap or a policy can be used.
	OK          bool
	AppProtocol string
	Target      slim.Key // of a ServiceImport
	NoCRD       bool     // of a ServiceImport
	Labels      slim.Labels
	TLS         *envoy.UpstreamTLS // of a policy
	Number      int64              // of instructions
}

// equal compares answers.
func (a Answer) equal(other Answer) bool {
	if !a.TLS.Equal(other.TLS) {
		return false
	}
	a.TLS, other.TLS = nil, nil
	return a == other
}

// losesBackend reports whether a backend is not to be spoken to, by the answer about its policy.
func (a Answer) losesBackend() bool { return a.Exists && !a.OK }

// Lookup answers what is asked of the cluster.
type Lookup func(Query) Answer

// Answers are those that were got, by what was asked.
type Answers map[Query]Answer

// Record returns a Lookup that keeps its answers in a map, and asks nothing twice.
func (lookup Lookup) Record(to Answers) Lookup {
	return func(q Query) Answer {
		a, known := to[q]
		if !known {
			a = lookup(q)
			to[q] = a
		}
		return a
	}
}

// IsFresh reports whether all answers are still the same.
func (r Answers) IsFresh(lookup Lookup) bool {
	for q, a := range r {
		if !lookup(q).equal(a) {
			return false
		}
	}
	return true
}

// port asks for a port of a Service.
func (lookup Lookup) port(service slim.Key, port int32, protocol corev1.Protocol) Answer {
	return lookup(Query{About: AboutPort, Key: service, Port: port, Protocol: protocol})
}

// Serves reports whether routes of a kind are served.
func (lookup Lookup) Serves(kind string) bool {
	return lookup(Query{About: AboutKind, ToKind: kind}).Exists
}

// tls asks how a port of TCP of a Service is spoken to.
func (lookup Lookup) tls(service slim.Key, port int32) Answer {
	return lookup(Query{About: AboutTLS, Key: service, Port: port, Protocol: corev1.ProtocolTCP})
}

// WithoutPolicies is a Lookup for which all ports are spoken to without TLS, for what does not depend on it.
func (lookup Lookup) WithoutPolicies() Lookup {
	return func(q Query) Answer {
		if q.About == AboutTLS {
			return Answer{}
		}
		return lookup(q)
	}
}

// mostProgram is how many instructions the program of a regular expression has at most, 0 for the bound of RE2.
func (lookup Lookup) mostProgram() int64 { return lookup(Query{About: AboutPrograms}).Number }

// asksServers reports whether the Envoy of all agents asks servers about requests.
func (lookup Lookup) asksServers() bool { return lookup(Query{About: AboutFleet}).Exists }

// Granted reports whether an object may refer to one of another namespace.
func (lookup Lookup) Granted(fromKind, fromNamespace, toKind string, to slim.Key) bool {
	if fromNamespace == to.Namespace {
		return true
	}
	return lookup(Query{About: AboutGrant, Key: to, FromKind: fromKind, FromNamespace: fromNamespace, ToKind: toKind}).Exists
}
