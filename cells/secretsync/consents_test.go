// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package secretsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// watchOf shows nothing by itself, and is complete or not.
type watchOf[T any] struct{ err error }

// Follow implements consentWatch.
func (watchOf[T]) Follow(context.Context, func(stream.Change[T]), ...func()) {}

// Complete implements consentWatch.
func (w *watchOf[T]) Complete() error { return w.err }

func grantOf(namespace, name, kind, from string, secrets ...string) stream.Change[referenceGrant] {
	g := &referenceGrant{}
	g.Namespace, g.Name = slim.MakeString(namespace), name
	g.Spec.From = []grantFrom{{Group: slim.MakeString(gatewayGroup), Kind: slim.MakeString(kind), Namespace: slim.MakeString(from)}}
	for _, s := range secrets {
		to := slim.MakeString("Secret")
		g.Spec.To = append(g.Spec.To, objectRef{Kind: &to, Name: s})
	}
	return stream.Change[referenceGrant]{Kind: stream.Upsert, Key: g.Key(), Object: g}
}

func setAt(namespace, name, gateways string) stream.Change[listenerSet] {
	s := &listenerSet{}
	s.Namespace, s.Name = slim.MakeString(namespace), name
	s.Spec.ParentRef = objectRef{Namespace: slim.MakeString(gateways), Name: "g"}
	return stream.Change[listenerSet]{Kind: stream.Upsert, Key: s.Key(), Object: s}
}

// SEC-22: what a configuration may mean by a name is of its own namespace, or what others let it refer to.
func TestMeaningsOfNames(t *testing.T) {
	none := secretref.Object{}
	grants, sets := &watchOf[referenceGrant]{}, &watchOf[listenerSet]{}
	c := newConsents(&k8s.Permissions{}, grants, sets)
	m := &meanings{own: "kube-system", names: secretref.NewNames(), consents: c}
	m.names.AddDefault(secretNamed("certs", "default"))
	hashed := secretNamed("aa", "some").CopyName() + "-0123456789ab" // of no object
	authority := secretref.Object{Kind: secretref.ConfigMap, Key: slim.Key{Namespace: "aa", Name: "ca"}}
	c.grantChanged(grantOf("aa", "some", "Gateway", "bb", "some"))
	c.grantChanged(grantOf("cc", "all", "Gateway", "bb", ""))
	c.grantChanged(grantOf("dd", "route", "HTTPRoute", "bb", ""))
	c.grantChanged(grantOf("ee", "set", "ListenerSet", "ff", "tls"))
	for _, set := range []stream.Change[listenerSet]{setAt("ff", "s", "bb"), setAt("ff", "t", "bb"), setAt("gg", "s", "hh")} {
		c.setChanged(set)
	}
	check := func(by, name string, of secretref.Object, want bool) {
		t.Helper()
		if got := m.mayBe(by, name, of); got != want {
			t.Errorf("by %s in %s %s may be meant: %t", name, by, of, got)
		}
	}
	for _, by := range []string{"bb", "kube-system"} {
		own := by == "kube-system"
		check(by, "bb-tls", none, true)
		check(by, "any", secretNamed("bb", "tls"), true)
		check(by, "aa-tls", none, own)
		check(by, "bbb-tls", none, own)
		check(by, "aa-tls", secretNamed("aa", "tls"), own)
		check(by, "bb-x-tls", secretNamed("bb-x", "tls"), own) // it has an owner
		check(by, "bb-x-tls", none, true)
		check(by, "aa-some", none, true)
		check(by, "aa-some-0", none, own)
		check(by, hashed, none, own)
		check(by, "aa-some", secretNamed("aa-some", ""), own)
		check(by, "x", secretNamed("aa", "some"), true)
		check(by, "cc-x-y", none, true)
		check(by, "x", secretNamed("cc", "x-y"), true)
		check(by, "dd-tls", none, own)
		check(by, "ee-tls", none, true)
		check(by, "ee-other", none, own)
		check(by, "ff-tls", none, true)
		check(by, "x", secretNamed("ff", "tls"), true)
		check(by, "gg-tls", none, own)
		check(by, "certs-default", none, true)
		check(by, "x", secretNamed("certs", "default"), true)
		check(by, "certs-other", none, own)
		check(by, authority.CopyName(), none, true)
		check(by, authority.CopyName(), authority, true)
	}
	gone := setAt("ff", "s", "bb")
	gone.Kind = stream.Delete
	c.setChanged(gone)
	check("bb", "ff-tls", none, true)
	moved := setAt("ff", "t", "hh")
	c.setChanged(moved)
	check("bb", "ff-tls", none, false)
	check("bb", "ee-tls", none, false)
	check("hh", "ee-tls", none, true)
	revoked := grantOf("aa", "some", "Gateway", "bb", "some")
	revoked.Kind = stream.Delete
	c.grantChanged(revoked)
	check("bb", "aa-some", none, false)
	check("bb", "aa-some", secretNamed("aa", "some"), false)

	sets.err = errors.New("not yet")
	check("bb", "aa-some", none, true)
	check("bb", "x", secretNamed("aa", "some"), true)
	c.hasGrants.Store(true)
	c.hasSets.Store(true)
	check("bb", "aa-some", none, false) // all were shown, and some may be missing now
	check("bb", "x", secretNamed("aa", "some"), true)
	m.consents = nil
	check("bb", "cc-x-y", none, false)
	check("bb", "x", secretNamed("aa", "some"), false)
	check("bb", "bb-tls", none, true)
}

// SEC-22: names that need memory have a bound for each namespace. What has more has its names all the same, and no others. Whatever comes and goes, nothing is left.
func TestManyPinnedNames(t *testing.T) {
	names := secretref.NewNames()
	means := &meanings{own: "kube-system", names: names}
	names.LimitPins(means.mayBe)
	names.MarkKnown()
	s := &configurationSource{
		namespace: "copies", counts: func(*envoy.Object) bool { return true }, own: "kube-system", isLeft: true, names: names, meanings: means, refer: means, log: slog.New(slog.DiscardHandler),
		pinned: map[slim.Key]pinned{}, many: map[string]int{}, reported: map[string]bool{},
	}
	vast := func(name string, n int) *envoy.Object {
		o := &envoy.Object{}
		o.Namespace, o.Name = slim.MakeString("team"), name
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("copies/team-%s-%05d", name, i))
		}
		o.Spec.Secrets = envoy.MakeSecretNames(all...)
		return o
	}
	r := &recorded{to: map[string][]string{}}
	show := func(kind stream.ChangeKind, o *envoy.Object) {
		s.changed(stream.Change[envoy.Object]{Kind: kind, Key: o.Key(), Object: o}, r)
	}
	all := []*envoy.Object{vast("a", 9000), vast("b", 9000), vast("c", 9000), vast("d", 12_000), vast("e", 10)}
	for _, o := range all {
		show(stream.Upsert, o)
		show(stream.Upsert, o)
	}
	if s.many["team"] > mostPinned {
		t.Errorf("%d names are pinned", s.many["team"])
	}
	for i := range 10_000 { // small ones, which are beyond that
		all = append(all, vast(fmt.Sprint("small-", i), 1))
		show(stream.Upsert, all[len(all)-1])
	}
	begin := time.Now()
	for i := range 10_000 {
		if name := fmt.Sprintf("team-small-%d-00000", i); !names.IsNamed("copies", name) || names.IsNamed("copies", name+"0") {
			t.Fatalf("%s is not named, or another name is", name)
		}
	}
	if passed := time.Since(begin); passed > 2*time.Second { // some 10 ms; each configuration asked for each name: 20 s
		t.Errorf("20,000 names were searched in %s, while all others wait", passed)
	}
	for name, want := range map[string]bool{
		"team-a-00001": true, "team-c-08999": true, "team-d-00001": true, "team-d-11999": true, "team-e-00009": true,
		"team-any": false, "team-e-00010": false, "other-any": false, "tea-any": false,
	} {
		if got := names.IsNamed("copies", name); got != want {
			t.Errorf("%s is named: %t", name, got)
		}
	}
	for _, name := range []string{"11998", "00002"} {
		if got := names.Of("copies", secretNamed("team-d", name)); strings.HasPrefix(got, "team-d") {
			t.Errorf("what may be meant is given to another as %s", got)
		}
	}
	if of := secretNamed("team-d", "any"); !names.Plain("copies", of) {
		t.Errorf("one vast configuration keeps its name from %s", of)
	}
	for _, o := range all {
		show(stream.Delete, o)
	}
	if names.IsNamed("copies", "team-a-00001") || names.IsNamed("copies", "team-d-11999") || len(s.pinned)+len(s.many) > 0 {
		t.Errorf("%d configurations hold names", len(s.pinned))
	}
}

// deniedKinds are the verbs and resources that a role does not allow.
type deniedKinds []string

// Denies implements role.
func (d deniedKinds) Denies(verb string, ref k8s.Ref) bool {
	return slices.Contains(d, verb+" "+ref.Resource.Resource)
}

// SEC-22: where the role does not allow to read all of what lets configurations refer to Secrets of other namespaces, copies stay that there are. A name without
// a copy may be meant where what there is of that can be read.
func TestConsentsThatTheRoleDenies(t *testing.T) {
	of := secretNamed("aa", "some")
	for _, test := range []struct {
		denied                           deniedKinds
		object, granted, other, attached bool
	}{
		{nil, false, true, false, true},
		{deniedKinds{"list referencegrants"}, true, false, false, false},
		{deniedKinds{"watch referencegrants"}, true, false, false, false},
		{deniedKinds{"list listenersets"}, true, true, false, false},
		{deniedKinds{"watch listenersets"}, true, true, false, false},
		{deniedKinds{"list referencegrants", "watch listenersets"}, true, false, false, false},
		{deniedKinds{"list gateways", "delete referencegrants"}, false, true, false, true},
	} {
		c := newConsents(test.denied, &watchOf[referenceGrant]{}, &watchOf[listenerSet]{})
		if !c.denies(grantKind.Resource()) {
			c.grantChanged(grantOf("aa", "g", "Gateway", "bb", "granted"))
		}
		if !c.denies(setKind.Resource()) {
			c.setChanged(setAt("cc", "s", "bb"))
		}
		got := []bool{c.letObject("bb", of), c.letName("bb", "aa-granted"), c.letName("bb", "aa-some"), c.letName("bb", "cc-any")}
		if want := []bool{test.object, test.granted, test.other, test.attached}; !slices.Equal(got, want) {
			t.Errorf("without %q: %t, want %t", test.denied, got, want)
		}
		if got := c.letName("bb", "aa-cfgmap-ca") && c.letObject("bb", secretref.Object{Kind: secretref.ConfigMap, Key: of.Key}); !got {
			t.Errorf("without %q no ConfigMap may be meant", test.denied)
		}
		if unsure := c.isUnsure(); unsure != test.object {
			t.Errorf("without %q it is asked again: %t", test.denied, unsure)
		}
	}
}

// SEC-22: a name may be that of the copy of a ConfigMap if it has a namespace before the kind, and a name behind it.
func TestNamesOfConfigMaps(t *testing.T) {
	for name, want := range map[string]bool{
		"aa-cfgmap-ca": true, "a-b-cfgmap-c.d": true, "aa-cfgmap-cfgmap-x": true, "aa-cfgmap-ca-cfgmap-x": true,
		"-cfgmap-ca": false, "aa-cfgmap-": false, "aa-cfgmap": false, "aacfgmap-ca": false, "a.b-cfgmap-ca": false, "aa-cfgmap-.": false, "A-cfgmap-ca": false, "": false,
		strings.Repeat("a", 64) + "-cfgmap-ca": false,
	} {
		if got := mayBeOfConfigMap(name); got != want {
			t.Errorf("%s may be that of a ConfigMap: %t", name, got)
		}
	}
}
