// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package labels_test

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/skep-operator/skep/resources/domain/labels"
)

// filter is the one of the option's entries, after what all default lists have.
func filter(t testing.TB, entries ...string) *labels.Filter {
	t.Helper()
	return filterAfter(t, labels.DefaultList{}, entries...)
}

func filterAfter(t testing.TB, d labels.DefaultList, entries ...string) *labels.Filter {
	t.Helper()
	user, err := labels.ParseEntries(entries)
	if err != nil {
		t.Fatal(err)
	}
	return labels.NewFilter(d, user)
}

// The lists of the releases: ID-8; numbers 20 and 22 of the contract's identities.md.
func TestDefaultListsOfReleases(t *testing.T) {
	const account, zone, region = "io.cilium.k8s.policy.serviceaccount", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
	var (
		first  = labels.DefaultList{}
		second = labels.DefaultList{ServiceAccount: true}
		third  = labels.DefaultList{ServiceAccount: true, NoTopology: true}
	)
	for name, test := range map[string]struct {
		list          labels.DefaultList
		entries       string
		kept, dropped string
	}{
		"1.17":                                  {first, "", "app " + account + " " + zone, ""},
		"1.18":                                  {second, "", "app " + account + " " + zone, ""},
		"1.20":                                  {third, "", "app " + account + " app.kubernetes.io/name x.topology.kubernetes.io/y", zone + " " + region},
		"1.17, an allow list":                   {first, "k8s:app", "app", account + " " + zone},
		"1.18, an allow list":                   {second, "k8s:app", "app " + account, zone},
		"1.20, an allow list":                   {third, "k8s:app", "app " + account, zone},
		"1.18, without service accounts":        {second, `k8s:!io\.cilium\.k8s\.policy\.serviceaccount`, "app", account},
		"1.20, with what is longer":             {third, "k8s:topology.kubernetes.io/zone", zone + " " + account, region + " app"},
		"1.20, an exclusion without any length": {third, "k8s:!", "app kubernetes.io/foo " + zone, ""},
	} {
		f := filterAfter(t, test.list, strings.Fields(test.entries)...)
		for _, key := range strings.Fields(test.kept) {
			if !f.Keeps("k8s", key) {
				t.Errorf("%s: %s is dropped", name, key)
			}
		}
		for _, key := range strings.Fields(test.dropped) {
			if f.Keeps("k8s", key) {
				t.Errorf("%s: %s is kept", name, key)
			}
		}
		if len(f.Warnings()) != 0 {
			t.Errorf("%s: it warns: %q", name, f.Warnings())
		}
	}
}

// The tables of docs/wire/identity.md.
func TestDefaultList(t *testing.T) {
	f := filter(t)
	for _, key := range []string{
		"app", "application", "team", "name", "k8s-app", "job-name",
		"app.kubernetes.io/name", "topology.kubernetes.io/zone", "batch.kubernetes.io/job-name",
		"io.kubernetes.pod.namespace", "io.cilium.k8s.policy.cluster", "io.cilium.k8s.policy.serviceaccount",
		"io.cilium.k8s.namespace.labels.team", "io.cilium.k8s.namespace.labels.kubernetes.io/metadata.name",
		"x.k8s.io/y",
	} {
		if !f.Keeps("k8s", key) {
			t.Errorf("%s is dropped", key)
		}
	}
	for _, key := range []string{
		"pod-template-hash", "pod-template-generation", "controller-uid", "controller-revision-hash", "etcd_node",
		"kubernetes.io/foo", "io.kubernetes.pod.name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index",
		"beta.kubernetes.io/arch", "failure-domain.beta.kubernetes.io/zone", "k8s.io/x",
		"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "annotation.foo",
	} {
		if f.Keeps("k8s", key) {
			t.Errorf("%s is kept", key)
		}
	}
	if len(f.Warnings()) != 0 {
		t.Errorf("it warns: %q", f.Warnings())
	}
}

// ID-4 to ID-8, and ID-E10 and ID-E11.
func TestEntries(t *testing.T) {
	for _, test := range []struct {
		entries       string
		kept, dropped string
	}{
		{"k8s:app", "app application app.kubernetes.io/name io.cilium.k8s.namespace.labels.a io.cilium.k8s.policy.cluster io.kubernetes.pod.namespace", "team io.cilium.k8s.policy.serviceaccount x.k8s.io/y"},
		{"k8s:!team", "app io.cilium.k8s.policy.serviceaccount tea", "team teams pod-template-hash"},
		{"!k8s:team", "app.kubernetes.io/name io.kubernetes.pod.namespace io.cilium.k8s.namespace.labels.a io.cilium.k8s.policy.cluster", "app team"},
		{"!", "app kubernetes.io/foo pod-template-hash etcd_node", ""},
		{"k8s:!", "app kubernetes.io/foo", ""},
		{"k8s:!a*", "kubernetes.io/foo team", "a aa app"},        // of length 0 on all but keys with an a
		{"! !team", "app kubernetes.io/foo", "team"},             // at its place in the list
		{"!team !", "app team kubernetes.io/foo", ""},            // so it takes back what came before
		{"(a|ab)", "a ab abc app.kubernetes.io/x", "b"},          // leftmost-first
		{"!(a|ab) ab?c?", "ab abc abd acd", "a ad"},              // 1 against the length of ab?c?
		{"foo:team", "", "team app"},                             // of another source: an allow list all the same
		{"team !team", "", "team teams app"},                     // a tie is dropped
		{"!tea team", "team", "tea teal app"},                    // the longer one counts
		{"eam$", "", "team eamx"},                                // not at the beginning
		{"te.m$", "team", "teams"},                               // a regular expression may well say where it ends
		{"kubernetes.io/hostname", "kubernetes.io/hostname", ""}, // 22 against 13
		{":team", "team", "app"},
	} {
		f := filter(t, strings.Fields(test.entries)...)
		for _, key := range strings.Fields(test.kept) {
			if !f.Keeps("k8s", key) {
				t.Errorf("%q: %s is dropped", test.entries, key)
			}
		}
		for _, key := range strings.Fields(test.dropped) {
			if f.Keeps("k8s", key) {
				t.Errorf("%q: %s is kept", test.entries, key)
			}
		}
	}
}

// ID-4: what cannot be read is named.
func TestBadEntries(t *testing.T) {
	_, err := labels.ParseEntries([]string{"k8s:", "ok", "k8s:(", ":", "", `!a{`, "(?:x)"})
	if err == nil {
		t.Fatal("all are taken")
	}
	for _, want := range []string{`"k8s:" includes nothing`, `"k8s:(": error parsing regexp`, `":" includes nothing`, `"" includes nothing`, `"(?:x)": error parsing`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %s", err, want)
		}
	}
	if strings.Contains(err.Error(), `"ok"`) || strings.Contains(err.Error(), `"!a{"`) {
		t.Errorf("%q complains about what is right", err)
	}
}

// ID-5: the trap is warned of, with what was meant.
func TestWarnings(t *testing.T) {
	w := filter(t, "!k8s:team").Warnings()
	if len(w) != 1 || !strings.Contains(w[0], `to exclude, write "k8s:!team"`) {
		t.Errorf("it warns %q", w)
	}
	base, _, err := labels.ParseFile([]byte(`{"version":1,"valid-prefixes":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if w := labels.NewFileFilter(base, nil).Warnings(); len(w) != 1 || !strings.Contains(w[0], `"reserved:.*"`) {
		t.Errorf("it warns %q", w)
	}
}

// ID-9.
func TestFile(t *testing.T) {
	parse := func(text string) *labels.Filter {
		t.Helper()
		base, _, err := labels.ParseFile([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return labels.NewFileFilter(base, nil)
	}
	allow := parse(`{"version":1,"valid-prefixes":[{"source":"k8s","prefix":"app","invert":false},{"source":"k8s","prefix":"app.k","invert":true,"more":1}],"else":{}}`)
	for key, want := range map[string]bool{"app": true, "application": true, "app.kubernetes.io/x": false, "team": false, "io.kubernetes.pod.namespace": false, "pod-template-hash": false} {
		if allow.Keeps("k8s", key) != want {
			t.Errorf("%s is kept: %t", key, !want)
		}
	}
	deny := parse(`{"version":1,"valid-prefixes":[{"source":"k8s","prefix":"ap.","invert":true}]}`)
	for key, want := range map[string]bool{"app": true, "ap.p": false, "pod-template-hash": true} {
		if deny.Keeps("k8s", key) != want {
			t.Errorf("%s is kept: %t", key, !want)
		}
	}
	if empty := parse(`{"version":1}`); !empty.Keeps("k8s", "pod-template-hash") {
		t.Error("an empty list drops something")
	}
	for text, want := range map[string]string{`{"version":1}`: "", "{\"version\":1}\n \n": "", `{"version":1} {"version":2}`: `{"version":2}`} {
		if _, rest, err := labels.ParseFile([]byte(text)); err != nil || string(rest) != want {
			t.Errorf("behind %s is %q, %v", text, rest, err)
		}
	}
	for _, text := range []string{
		``, `[]`, `{}`, `{"version":2}`, `{"version":1,"valid-prefixes":[{"source":"k8s"}]}`,
		`{"version":1,"valid-prefixes":[{"prefix":"app"}]}`, `{"version":1,"valid-prefixes":[{"source":"k8s","prefix":""}]}`,
	} {
		if _, _, err := labels.ParseFile([]byte(text)); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// keeps is the arithmetic once more, from its description: all lengths are
// gathered, then weighed.
func keeps(base, user []string, source, key string) bool {
	var included, excluded []int
	for _, text := range append(slices.Clone(base), user...) {
		from, pattern, ok := strings.Cut(text, ":")
		if !ok {
			from, pattern = "", text
		}
		exclude := strings.HasPrefix(pattern, "!")
		pattern = strings.TrimPrefix(pattern, "!")
		// Anchored at the beginning, the leftmost match is the one there, if any.
		match := anchored(pattern).FindStringIndex(key)
		switch {
		case match == nil || from != "" && from != source:
		case exclude:
			excluded = append(excluded, match[1])
		default:
			included = append(included, match[1])
		}
	}
	if i := lastIndex(excluded, 0); i >= 0 {
		excluded = excluded[i+1:]
	}
	most, least := 0, 0
	if len(included) > 0 {
		most = slices.Max(included)
	}
	if len(excluded) > 0 {
		least = slices.Min(excluded)
	}
	allow := slices.ContainsFunc(user, func(text string) bool {
		return !strings.HasPrefix(text[strings.Index(text, ":")+1:], "!")
	})
	return most > least || least == 0 && !allow
}

// anchored is a regular expression that matches at the beginning only.
func anchored(pattern string) *regexp.Regexp {
	if known, ok := expressions.Load(pattern); ok {
		return known.(*regexp.Regexp)
	}
	made := regexp.MustCompile("^(?:" + pattern + ")")
	expressions.Store(pattern, made)
	return made
}

var expressions sync.Map // by pattern

func lastIndex(list []int, value int) int {
	for i, v := range slices.Backward(list) {
		if v == value {
			return i
		}
	}
	return -1
}

// defaults is the list of docs/wire/identity.md.
var defaults = []string{
	`reserved:.*`, `io\.kubernetes\.pod\.namespace`, `io\.cilium\.k8s\.namespace\.labels`, `app\.kubernetes\.io`, `io\.cilium\.k8s\.policy\.cluster`,
	`!io\.kubernetes`, `!kubernetes\.io`, `!statefulset\.kubernetes\.io/pod-name`, `!apps\.kubernetes\.io/pod-index`, `!batch\.kubernetes\.io/job-completion-index`,
	`!batch\.kubernetes\.io/controller-uid`, `!.*beta\.kubernetes\.io`, `!k8s\.io`, `!pod-template-generation`, `!pod-template-hash`,
	`!controller-revision-hash`, `!controller-uid`, `!annotation.*`, `!etcd_node`,
}

func TestArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "ab", "a*", "b?", "(a|ab)", "(ab|a)", "a+?", ".", ".*", "^a", "app", "io", `\.`, "kubernetes", "(|a)", "[ab]", "k8s", "b$", "/"}
	keyParts := []string{"a", "b", "ab", "app", "io", ".", "kubernetes", "k8s", "/", "pod-template-hash", "io.kubernetes.pod.namespace", "beta"}
	join := func(from []string, most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteString(from[r.IntN(len(from))])
		}
		return b.String()
	}
	kept, dropped := 0, 0
	for range 300 {
		var user []string
		for range r.IntN(6) {
			text := []string{"", "", "k8s:", ":", "gen:", "!k8s:"}[r.IntN(6)]
			if exclude := r.IntN(2) == 0; exclude && r.IntN(6) == 0 {
				text += "!"
			} else if exclude {
				text += "!" + join(parts, 3)
			} else {
				text += join(parts, 3)
			}
			user = append(user, text)
		}
		f := filter(t, user...)
		for range 30 {
			source, key := []string{"k8s", "k8s", "gen", "!k8s"}[r.IntN(4)], join(keyParts, 4)
			want := keeps(defaults, user, source, key)
			if got := f.Keeps(source, key); got != want {
				t.Fatalf("%q: %s:%s is kept: %t", user, source, key, got)
			}
			if want {
				kept++
			} else {
				dropped++
			}
		}
	}
	if kept < 1_000 || dropped < 1_000 {
		t.Errorf("%d kept, %d dropped: the sample says little", kept, dropped)
	}
}

// Whatever a user writes is taken or refused, and decides the same as the
// description does.
func FuzzEntry(f *testing.F) {
	for _, text := range slices.Concat(defaults, []string{"k8s:app", "!k8s:team", "!", "k8s:!a*", "(?:x)", "(a|ab)", `\C`, "k8s:(?i)APP"}) {
		f.Add(text, "app.kubernetes.io/name")
	}
	f.Fuzz(func(t *testing.T, text, key string) {
		entry, err := labels.ParseEntry(text)
		if err != nil {
			return
		}
		if got, want := labels.NewFilter(labels.DefaultList{}, []labels.Entry{entry}).Keeps("k8s", key), keeps(defaults, []string{text}, "k8s", key); got != want {
			t.Errorf("%q keeps %q: %t", text, key, got)
		}
	})
}

func BenchmarkIdentity(b *testing.B) {
	f := filter(b)
	pod := labels.Pod{Cluster: "default", Namespace: "shop", ServiceAccount: "default", Labels: maps.All(map[string]string{
		"app": "web", "pod-template-hash": "abc", "app.kubernetes.io/name": "web", "statefulset.kubernetes.io/pod-name": "web-0",
	}), NamespaceLabels: maps.All(map[string]string{"kubernetes.io/metadata.name": "shop"})}
	b.ReportAllocs()
	for b.Loop() {
		pod.Identity(f.Keeps)
	}
}
