// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// recorded are the references that a source has recorded last, and how often.
type recorded struct {
	to    map[string][]string
	n     int
	woken []secretref.Object
}

// Set implements secretref.Recorder.
func (r *recorded) Set(from corev1.ObjectReference, to ...secretref.Object) {
	r.n++
	r.to[from.Namespace+"/"+from.Name] = nil
	for _, of := range to {
		r.to[from.Namespace+"/"+from.Name] = append(r.to[from.Namespace+"/"+from.Name], of.Namespace+"/"+of.Name)
	}
}

// SetFirst implements secretref.Recorder.
func (r *recorded) SetFirst(from corev1.ObjectReference, _ int, to ...secretref.Object) {
	r.Set(from, to...)
}

// SetUnknown implements secretref.Recorder.
func (*recorded) SetUnknown(corev1.ObjectReference) {}

// Changed implements secretref.Recorder.
func (r *recorded) Changed(of secretref.Object) { r.woken = append(r.woken, of) }

// SEC-10; K3 and K7 of the contract's tenants.md: a ReferenceGrant concerns what refers to Secrets of its namespace, and nothing where it permits the same as
// before: grants and references of others cost it nothing. Each Secret counts once.
func TestGrantsConcernWhatRefersThere(t *testing.T) {
	s := newGatewaySource(envoy.Config{}, nil, secretref.NewNames(), nil, nil, nil, nil).Source.(*gatewaySource)
	s.ours["ours"] = true
	r := &recorded{to: map[string][]string{}}
	gatewayOf := func(namespace string, refs ...string) {
		g := &gateway{}
		g.Namespace, g.Name, g.Spec.GatewayClassName = slim.MakeString(namespace), "g", slim.MakeString("ours")
		l := listener{}
		for i := 0; i < len(refs); i += 2 {
			l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, objectRef{Namespace: slim.MakeString(refs[i]), Name: refs[i+1]})
		}
		g.Spec.Listeners = []listener{l}
		s.gatewayChanged(stream.Change[gateway]{Kind: stream.Upsert, Key: g.Key(), Object: g}, r)
	}
	secretKind := slim.MakeString("Secret")
	grantOf := func(kind stream.ChangeKind, namespace, name, from string, secrets ...string) {
		g := &referenceGrant{}
		g.Namespace, g.Name = slim.MakeString(namespace), name
		g.Spec.From = []grantFrom{{slim.MakeString(gatewayGroup), slim.MakeString("Gateway"), slim.MakeString(from)}}
		for _, secret := range secrets {
			g.Spec.To = append(g.Spec.To, objectRef{Kind: &secretKind, Name: secret})
		}
		s.grantChanged(stream.Change[referenceGrant]{Kind: kind, Key: g.Key(), Object: g}, r)
	}
	var many []string
	for i := range 4096 {
		many = append(many, "elsewhere", fmt.Sprint("s", i%1000))
	}
	for i := range 25 {
		gatewayOf(fmt.Sprint("bb", i), many...)
	}
	gatewayOf("aa", "certs", "tls", "certs", "other", "certs", "tls", "aa", "own")
	for i := range 500 {
		grantOf(stream.Upsert, "bb0", fmt.Sprint("grant", i), "elsewhere", "")
	}
	r.n = 0
	for step, want := range []struct {
		change func()
		n      int
		to     []string
	}{
		{func() { grantOf(stream.Upsert, "certs", "one", "aa", "tls") }, 1, []string{"certs/tls", "aa/own"}},
		{func() { grantOf(stream.Upsert, "certs", "one", "aa", "tls") }, 0, []string{"certs/tls", "aa/own"}},
		{func() { grantOf(stream.Upsert, "certs", "all", "aa", "") }, 1, []string{"certs/tls", "certs/other", "aa/own"}},
		{func() { grantOf(stream.Delete, "certs", "one", "aa") }, 1, []string{"certs/tls", "certs/other", "aa/own"}},
		{func() { grantOf(stream.Upsert, "certs", "all", "bb0", "") }, 1, []string{"aa/own"}},
		{func() { grantOf(stream.Upsert, "bb0", "grant0", "elsewhere", "x") }, 0, []string{"aa/own"}},
		{func() { gatewayOf("aa", "aa", "own") }, 1, []string{"aa/own"}},
		{func() { grantOf(stream.Upsert, "certs", "all", "aa", "") }, 0, []string{"aa/own"}},
	} {
		want.change()
		if got := r.to["aa/g"]; !slices.Equal(got, want.to) || r.n != want.n {
			t.Errorf("step %d: it refers to %v after %d evaluations, want %v after %d", step, got, r.n, want.to, want.n)
		}
		r.n = 0
	}
	for i := range 25 {
		gone := &gateway{}
		gone.Namespace, gone.Name = slim.MakeString(fmt.Sprint("bb", i)), "g"
		s.gatewayChanged(stream.Change[gateway]{Kind: stream.Delete, Key: gone.Key(), Object: gone}, r)
	}
	if len(s.into) > 0 || len(s.of) > 0 {
		t.Errorf("of Gateways that are gone there is left %v, %v", s.into, s.of)
	}
}
