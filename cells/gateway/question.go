// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// question is what planning asks of the cluster. It is comparable.
type question struct {
	about subject
	key   slim.Key
	port  int32 // of a Service
	// protocol is that of the port, "" for any.
	protocol string
	// from is the object that refers to another one, of a grant. Its name does not matter.
	fromKind, fromNamespace string
	toKind                  string
}

type subject int

const (
	aboutPort      subject = iota // a port of a Service
	aboutImport                   // the Service of a ServiceImport
	aboutNamespace                // the labels of a Namespace
	aboutGrant                    // whether a ReferenceGrant allows a reference
	aboutSecret                   // a TLS secret
	aboutTLS                      // how a port of a Service is spoken to
	aboutKind                     // whether routes of a kind, toKind, are served
	aboutAuthority                // a ConfigMap with certificates of authorities
	aboutFleet                    // whether the Envoy of all agents asks servers about requests
)

// answer is the answer to a question.
type answer struct {
	// exists says that there is the object, the grant, or a policy.
	exists bool
	// ok says that a Service has the port, or that a secret, a ConfigMap or a policy can be used.
	ok          bool
	appProtocol string
	target      slim.Key // of a ServiceImport
	noCRD       bool     // of a ServiceImport
	labels      slim.Labels
	tls         *envoy.UpstreamTLS // of a policy
}

// equal compares answers.
func (a answer) equal(other answer) bool {
	if !a.tls.Equal(other.tls) {
		return false
	}
	a.tls, other.tls = nil, nil
	return a == other
}

// asker answers questions.
type asker func(question) answer

// recorded are questions with their answers.
type recorded map[question]answer

// record returns an asker that records what it is asked.
func (ask asker) record(to recorded) asker {
	return func(q question) answer {
		a, known := to[q]
		if !known {
			a = ask(q)
			to[q] = a
		}
		return a
	}
}

// isFresh reports whether all answers are still the same.
func (r recorded) isFresh(ask asker) bool {
	for q, a := range r {
		if !ask(q).equal(a) {
			return false
		}
	}
	return true
}

// port asks for a port of a Service, of a protocol or, for "", of any.
func (ask asker) port(service slim.Key, port int32, protocol string) answer {
	return ask(question{about: aboutPort, key: service, port: port, protocol: protocol})
}

// serves reports whether routes of a kind are served.
func (ask asker) serves(kind string) bool {
	return ask(question{about: aboutKind, toKind: kind}).exists
}

// tls asks how a port of a Service is spoken to.
func (ask asker) tls(service slim.Key, port int32) answer {
	return ask(question{about: aboutTLS, key: service, port: port})
}

// withoutPolicies is an asker for which all ports are spoken to without TLS, for what does not depend on it.
func (ask asker) withoutPolicies() asker {
	return func(q question) answer {
		if q.about == aboutTLS {
			return answer{}
		}
		return ask(q)
	}
}

// asksServers reports whether the Envoy of all agents asks servers about requests.
func (ask asker) asksServers() bool { return ask(question{about: aboutFleet}).exists }

// granted reports whether an object may refer to one of another namespace.
func (ask asker) granted(fromKind, fromNamespace, toKind string, to slim.Key) bool {
	if fromNamespace == to.Namespace {
		return true
	}
	return ask(question{about: aboutGrant, key: to, fromKind: fromKind, fromNamespace: fromNamespace, toKind: toKind}).exists
}
