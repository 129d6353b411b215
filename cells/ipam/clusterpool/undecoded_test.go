// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/logging/logtest"
	"github.com/skep-operator/skep/runtime/metrics"
)

// decoded is a CiliumNode as a stream decodes it.
func decoded(t *testing.T, name, rest string) *ciliumio.Node {
	t.Helper()
	codec, err := slim.JSON[ciliumio.Node]()
	if err != nil {
		t.Fatal(err)
	}
	n := &ciliumio.Node{}
	text := fmt.Sprintf(`{"metadata":{"name":%q,"uid":"uid-of-%s","resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z"},%s}`, name, name, rest)
	if err := codec.DecodeJSON([]byte(text), n); err != nil {
		t.Fatal(err)
	}
	return n
}

// spoil makes a node say something that cannot be decoded.
func (s *story) spoil(name, rest string) {
	s.t.Helper()
	o := newObserved(decoded(s.t, name, rest))
	if before := s.nodes[name]; before != nil {
		o.UID, o.Created = before.UID, before.Created
	}
	s.nodes[name] = &o
	s.apply(s.alloc.upsert(o))
}

// spoilt are podCIDRs of a node that has 10.0.1.0/24, and whether that can be
// found in them.
var spoilt = map[string]bool{
	`"spec":{"ipam":{"podCIDRs":"10.0.1.0/24"}}`:                   true,
	`"spec":{"ipam":{"podCIDRs":["10.0.1.0/24",7]}}`:               true,
	`"spec":{"ipam":{"podCIDRs":[{"cidr":"10.0.1.0/24"},null]}}`:   true,
	`"spec":{"ipam":{"podCIDRs":{"v4":["10.0.1.0\/24"],"v6":[]}}}`: true,
	`"spec":{"ipam":{"podCIDRs":"10.0.1.0/24 and more"}}`:          true,
	`"spec":{"ipam":{"podCIDRs":7}}`:                               false,
	`"spec":{"ipam":{"podCIDRs":[true,{}]}}`:                       false,
	`"spec":{"ipam":{"podCIDRs":"all of them"}}`:                   false,
	`"spec":{"ipam":["10.0.1.0/24"]}`:                              false,
	`"spec":"10.0.1.0/24"`:                                         false,
}

// POOL-36, at start: what can be found is reserved; where nothing can be found,
// nothing is given out until the node is repaired, or gone.
func TestUndecodablePodCIDRsAtStart(t *testing.T) {
	for spec, found := range spoilt {
		t.Run(spec, func(t *testing.T) {
			s := four(t)
			s.spoil("a", spec)
			s.node("has", "10.0.2.0/24")
			s.node("none")
			s.markSynced()
			s.want("has", "10.0.2.0/24")
			if found {
				s.want("none", "10.0.0.0/24")
				s.gives("10.0.3.0/24")
			} else {
				const why = "waiting: spec.ipam.podCIDRs of CiliumNode a cannot be decoded, it may have any CIDR; repair or delete it"
				s.wantError("none", why)
				s.node("later")
				s.wantError("later", why)
				s.node("says", "10.0.3.0/24")
				s.want("says", "10.0.3.0/24")
			}
			if text := describe(s.alloc.claims.problems(false)); !strings.HasPrefix(text, "CiliumNode a: cannot decode spec") {
				t.Errorf("health says %q", text)
			}
			s.node("a", "10.0.1.0/24") // repaired
			s.want("a", "10.0.1.0/24")
			s.want("none", "10.0.0.0/24")
			if len(s.alloc.claims.problems(false)) != 0 {
				t.Errorf("wrong is %v", s.alloc.claims.problems(false))
			}
			s.spoil("a", spec)
			s.delete("a")
			if !found {
				s.want("later", "10.0.1.0/24")
			}
		})
	}
}

// POOL-36, later: a node keeps what it was known to hold, and others are served.
func TestUndecodablePodCIDRsLater(t *testing.T) {
	for spec := range spoilt {
		t.Run(spec, func(t *testing.T) {
			s := four(t)
			s.node("a", "10.0.1.0/24")
			s.markSynced()
			s.spoil("a", spec)
			s.gives("10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24")
			if n := s.writes["a"]; n != 0 {
				t.Errorf("it was written %d times", n)
			}
			s.node("a", "10.0.1.0/24")
			s.want("a", "10.0.1.0/24")
			s.spoil("a", spec)
			s.node("a")
			s.want("a", "10.0.1.0/24") // as after any clearing
			s.spoil("a", spec)
			s.delete("a")
			s.want("new-3", "10.0.1.0/24")
		})
	}
}

// POOL-36: of two families, those are given of which the node has shown what it has.
func TestUndecodableFamily(t *testing.T) {
	c, shared := dual("10.0.0.0/22", "fd00::/110")
	only4, _ := v4(24, "10.0.0.0/22")
	for name, test := range map[string]struct {
		config Config
		shared cluster.Config
		waits  bool
	}{
		"both": {c, shared, true}, "one": {only4, cluster.Config{EnableIPv4: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, test.config, test.shared)
			s.spoil("a", `"spec":{"ipam":{"podCIDRs":["10.0.1.0/24",7]}}`)
			s.markSynced()
			s.node("b")
			if waits := s.nodes["b"].Error != ""; waits != test.waits {
				t.Errorf("it has %v and error %q", s.nodes["b"].PodCIDRs, s.nodes["b"].Error)
			}
		})
	}
}

// POOL-36: podCIDRs decide, and no other field.
func TestOtherUndecodableFieldsDoNotMatter(t *testing.T) {
	for _, rest := range []string{
		`"spec":{"ipam":{"podCIDRs":["10.0.1.0/24"]},"encryption":{"key":"seven"}}`,
		`"spec":{"ipam":{"podCIDRs":["10.0.1.0/24"],"pools":7},"encryption":[]}`,
		`"spec":{"ipam":{"podCIDRs":["10.0.1.0/24"]},"addresses":"none"}`,
		`"spec":{"ipam":{"podCIDRs":["10.0.1.0/24"]}},"status":"fine"`,
		`"spec":{"ipam":{"podCIDRs":["10.0.1.0/24"]}},"status":{"ipam":{"operator-status":{"error":404}}}`,
	} {
		t.Run(rest, func(t *testing.T) {
			s := four(t)
			s.spoil("a", rest)
			s.markSynced()
			s.gives("10.0.0.0/24", "10.0.2.0/24", "10.0.3.0/24")
			if !s.alloc.upToDate("a") || len(s.alloc.claims.problems(false)) != 0 {
				t.Errorf("something is wrong with it: %v", s.alloc.claims.problems(false))
			}
		})
	}
}

// POOL-36: so does a CiliumNode of which nothing can be decoded, for as long as the
// stream has it so. Health, the log and nodes that wait name it.
func TestNodeThatCannotBeDecodedAtAll(t *testing.T) {
	s := four(t)
	s.markSynced()
	s.node("a", "10.0.1.0/24")
	s.alloc.claims.setUndecoded([]string{"", "x"})
	s.node("b")
	s.wantError("b", "waiting: a CiliumNode cannot be decoded that does not say its name; it may have any CIDR")
	s.alloc.claims.setUndecoded([]string{"x"})
	s.apply(s.alloc.retryPending())
	s.wantError("b", "waiting: spec.ipam.podCIDRs of CiliumNode x cannot be decoded, it may have any CIDR; repair or delete it")
	s.alloc.claims.setUndecoded(nil)
	s.apply(s.alloc.retryPending())
	s.want("b", "10.0.0.0/24")
}

// Health shows problems of nodes as long as they last; the log has each once.
func TestProblemsOfNodesAreReported(t *testing.T) {
	c, shared := v4(24, "10.0.0.0/22")
	alloc, err := newAllocator(c, shared)
	if err != nil {
		t.Fatal(err)
	}
	tree, log := health.NewTree(), &logtest.Buffer{}
	s := &controller{params: params{Alloc: alloc, Metrics: newMetrics(metrics.Factory{}), Health: tree.Reporter("ipam.clusterpool"), Log: slog.New(slog.NewTextHandler(log, nil))}}
	see := func(name, rest string) {
		s.handleChange(stream.Change[ciliumio.Node]{Kind: stream.Upsert, Key: slim.Key{Name: name}, Object: decoded(t, name, rest)})
	}
	degraded := func() (text string) {
		for _, status := range tree.Degraded() {
			text += status.ID + ": " + status.Message
		}
		return text
	}
	s.handleSynced()
	see("good", `"spec":{}`)
	if text := degraded(); text != "" {
		t.Error(text)
	}
	for range 3 {
		see("bad", `"spec":{"ipam":{"podCIDRs":7}}`)
	}
	see("wide", `"spec":{"ipam":{"podCIDRs":["0.0.0.0/0"]}}`)
	if text := degraded(); !strings.HasPrefix(text, "ipam.clusterpool.nodes: CiliumNode bad: cannot decode spec.ipam.podCIDRs: ") || !strings.HasSuffix(text, "; and 1 more") {
		t.Error(text)
	}
	if n := log.Count("are refused or cannot be decoded"); n != 2 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
	see("wide", `"spec":{}`)
	s.handleChange(stream.Change[ciliumio.Node]{Kind: stream.Delete, Key: slim.Key{Name: "bad"}, Object: decoded(t, "bad", `"spec":{}`)})
	if text := degraded(); text != "" {
		t.Error(text)
	}
}
