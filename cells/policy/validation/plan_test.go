// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package validation

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/networkpolicy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

func decode(t *testing.T, text string) *networkpolicy.Policy {
	t.Helper()
	codec, err := slim.JSON[networkpolicy.Policy]()
	if err != nil {
		t.Fatal(err)
	}
	p := &networkpolicy.Policy{}
	if err := codec.DecodeJSON([]byte(text), p); err != nil {
		t.Fatal(text, err)
	}
	return p
}

const metadata = `"metadata":{"name":"web","namespace":"default","uid":"5b1b8a54-1f1b-4c5b-9b1f-0f6c0c8d1a2b","resourceVersion":"7"}`

// VALID-1, VALID-2 and VALID-9; VALID-E2: all rules count, and what cannot be decoded is not valid.
func TestValidity(t *testing.T) {
	const (
		good = `{"endpointSelector":{},"egress":[{"toEntities":["all"]}]}`
		bad  = `{"endpointSelector":{},"egress":[{"toEntities":["mars"]}]}`
	)
	for spec, want := range map[string]string{
		`"spec":` + good:                            succeeded,
		`"spec":` + bad:                             "unsupported entity: mars",
		`"specs":[` + bad + `,` + good + `]`:        "unsupported entity: mars",
		`"spec":{},"specs":[` + bad + `]`:           "rule must have one of EndpointSelector or NodeSelector\nunsupported entity: mars",
		`"specs":[]`:                                succeeded,
		`"spec":null,"specs":null`:                  succeeded,
		`"spec":{"endpointSelector":{},"egress":7}`: "cannot decode the rule: *",
		`"spec":"x"`:                                "cannot decode the rule: *",
		`"specs":"x"`:                               "cannot decode the list of rules: *",
		`"specs":[7,` + good + `]`:                  "cannot decode the rule: *",
		`"spec":{"endpointSelector":{},"future":{"x":1},"egress":[{"more":[1]}]}`: succeeded,
	} {
		p := decode(t, "{"+metadata+","+spec+"}")
		got := validityOf(p.Problems(networkpolicy.Config{}.Features(), release.All()[0]))
		if prefix, open := strings.CutSuffix(want, "*"); open && !strings.HasPrefix(got.Message, prefix) || !open && got.Message != want {
			t.Errorf("%s: %q, want %q", spec, got.Message, want)
		}
		if isTrue := got.Status == "True"; isTrue != (want == succeeded) {
			t.Errorf("%s: %v", spec, got)
		}
	}
}

// VALID-8: messages of many rules are cut at a line.
func TestLongMessages(t *testing.T) {
	long := strings.Repeat("é", maxMessage)
	for name, test := range map[string]struct {
		lines []string
		tail  string
	}{
		"one":  {[]string{long}, "…"},
		"two":  {[]string{long, "x"}, "…\nand 1 more rules are not valid"},
		"many": {slices.Repeat([]string{strings.Repeat("x", 99)}, 1000), "\nand 919 more rules are not valid"},
	} {
		got := shorten(test.lines, 0)
		if len(got) > maxMessage+50 || !strings.HasSuffix(got, test.tail) || strings.ToValidUTF8(got, "?") != got {
			t.Errorf("%s: %d bytes, …%q", name, len(got), got[max(0, len(got)-60):])
		}
	}
}

// VALID-10 to VALID-12: a patch changes the condition and nothing else, and is not applied to another state.
func TestPatches(t *testing.T) {
	now := time.Date(2024, 8, 20, 10, 0, 0, 0, time.UTC)
	const (
		other = `{"type":"Other","status":"Unknown","message":"m","reason":"r"}`
		valid = `{"type":"Valid","status":"True","lastTransitionTime":"2020-01-01T00:00:00Z","message":"Policy validation succeeded","reason":"kept"}`
		wrong = `{"type":"Valid","status":"False","lastTransitionTime":"2020-01-01T00:00:00Z","message":"old"}`
		added = `{"type":"Valid","status":"False","lastTransitionTime":"2024-08-20T10:00:00Z","message":"new"}`
	)
	want := validity{"False", "new"}
	for _, test := range []struct{ status, want string }{
		{``, `{"conditions":[` + added + `]}`},
		{`,"status":null`, `{"conditions":[` + added + `]}`},
		{`,"status":{}`, `{"conditions":[` + added + `]}`},
		{`,"status":{"derivativePolicies":{"x":{"ok":true}}}`, `{"derivativePolicies":{"x":{"ok":true}},"conditions":[` + added + `]}`},
		{`,"status":{"conditions":[` + other + `]}`, `{"conditions":[` + other + `,` + added + `]}`},
		{`,"status":{"conditions":[` + other + `,` + valid + `]}`, `{"conditions":[` + other + `,` +
			`{"type":"Valid","status":"False","lastTransitionTime":"2024-08-20T10:00:00Z","message":"new","reason":"kept"}]}`},
		{`,"status":{"conditions":[` + wrong + `,` + other + `]}`, `{"conditions":[` +
			`{"type":"Valid","status":"False","lastTransitionTime":"2020-01-01T00:00:00Z","message":"new"},` + other + `]}`},
	} {
		object := "{" + metadata + `,"spec":{"x":1}` + test.status + "}"
		body, err := patch(decode(t, object), want, now)
		if err != nil {
			t.Fatal(err)
		}
		p, err := jsonpatch.DecodePatch(body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Apply([]byte(object))
		if err != nil {
			t.Fatalf("%s: %s: %v", object, body, err)
		}
		if whole := "{" + metadata + `,"spec":{"x":1},"status":` + test.want + "}"; !jsonpatch.Equal(got, []byte(whole)) {
			t.Errorf("%s: %s\nwant %s", test.status, got, whole)
		}
		if again := decode(t, string(got)); current(again) != want {
			t.Errorf("%s: the condition is %v", got, current(again))
		}
		if _, err := p.Apply([]byte(strings.Replace(object, `"resourceVersion":"7"`, `"resourceVersion":"8"`, 1))); err == nil {
			t.Errorf("%s was applied to another state", body)
		}
	}
}

// VALID-13: what is kept of a valid policy does not grow with it.
func TestMemory(t *testing.T) {
	var entries []string
	for i := range 100 {
		entries = append(entries, fmt.Sprintf(`{"toCIDR":["10.0.%d.0/24"],"toPorts":[{"ports":[{"port":"443","protocol":"TCP"}]}]}`, i))
	}
	text := fmt.Sprintf(`{%s,"spec":{"endpointSelector":{},"egress":[%s]},"status":{"conditions":[{"type":"Valid","status":"True","message":%q}]}}`, metadata, strings.Join(entries, ","), succeeded)
	const n = 200
	kept := make([]*networkpolicy.Policy, n)
	before := heap()
	for i := range kept {
		kept[i] = decode(t, text)
	}
	if each := (heap() - before) / n; each > 500 {
		t.Errorf("%d bytes are kept of a policy of %d", each, len(text))
	}
	if !json.Valid([]byte(text)) || kept[n-1] == nil {
		t.Error("not kept")
	}
}

// heap is what is in use. Pools of earlier tests are freed by the second collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
