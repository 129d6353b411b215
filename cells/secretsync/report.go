// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/secretref"
)

// reports are what users are to know of the objects that refer to others, by kind.
type reports struct {
	params params

	mu  sync.Mutex
	all map[string]*envoy.Reports
}

func (r *reports) ofKind(kind string) *envoy.Reports {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string]*envoy.Reports{}
	}
	if r.all[kind] == nil {
		p := r.params
		r.all[kind] = envoy.NewReports(kind, p.Events, p.Log, p.Health.Child(strings.ToLower(kind)))
	}
	return r.all[kind]
}

// set replaces the notices about a reference to an object, with all that refer to it.
func (r *reports) set(to secretref.Object, from []reference, notices ...envoy.Notice) {
	for _, ref := range from {
		r.ofKind(ref.from.Kind).Set(to.String(), ref.from, notices...)
	}
}

// clear removes the notices about a reference that is gone.
func (r *reports) clear(from corev1.ObjectReference, to secretref.Object) {
	r.ofKind(from.Kind).Set(to.String(), from)
}

// setBeyond replaces the notice that an object refers to more than is copied.
func (r *reports) setBeyond(from corev1.ObjectReference, beyond int) {
	var notices []envoy.Notice
	if beyond > 0 {
		notices = append(notices, envoy.Notice{Reason: "SecretNotCopied", Degrades: true, Message: fmt.Sprintf(
			"%d of the Secrets that it refers to are not copied: an object may refer to %d; divide it", beyond, mostReferences)})
	}
	r.ofKind(from.Kind).Set("", from, notices...)
}

func missing(of secretref.Object) envoy.Notice {
	return envoy.Notice{Reason: "SecretNotFound", Message: fmt.Sprintf("%s does not exist: TLS that needs it is not served", of)}
}

// notValid is that a Secret has no certificate with its key (SEC-17).
func notValid(of secretref.Object, err error) envoy.Notice {
	return envoy.Notice{Reason: "SecretNotValid", Message: fmt.Sprintf("%s has no certificate with its key, which Envoy does not take: %v", of, err)}
}

func notCopied(err error) envoy.Notice {
	return envoy.Notice{Reason: "SecretNotCopied", Message: err.Error(), Degrades: true}
}

// refused is that a network policy may not use what is of another namespace (SEC-15).
func refused(of secretref.Object) envoy.Notice {
	return envoy.Notice{Reason: "SecretRefused", Message: fmt.Sprintf("%s is of another namespace: --policy-secrets-own-namespace-only has policies go without", of)}
}

// borrowed is that a network policy uses what is of another namespace.
func borrowed(of secretref.Object) envoy.Notice {
	return envoy.Notice{Reason: "SecretOfAnotherNamespace", IsServed: true, Message: fmt.Sprintf(
		"%s is of another namespace, and is copied for agents: the author of the policy can have its values sent; --policy-secrets-own-namespace-only refuses this", of)}
}
