// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agents

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/cluster/release"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// ID-41: the status names the releases that run, what tells them, and on how many nodes they are; an agent that is newer than what is served
// is named once.
func TestCensus(t *testing.T) {
	configured := release.Configured{Release: releaseOf(t, "1.18"), KnownBy: "the option cilium-release"}
	c := newCensus()
	c.reset(map[slim.Key]entry{})
	apply := func(kind stream.ChangeKind, p *Pod, newer ...string) {
		t.Helper()
		if got := c.apply(stream.Change[Pod]{Kind: kind, Key: p.Key(), Object: p}, configured); !slices.Equal(got, newer) {
			t.Errorf("%s: newer than all are %q, want %q", p.Name, got, newer)
		}
	}
	check := func(want ...[]string) {
		t.Helper()
		if diff := cmp.Diff(want, c.rows()); diff != "" {
			t.Error(diff)
		}
	}
	check()
	b := agentPod("b", "n1", "i:v1.20.1", "")
	apply(stream.Upsert, agentPod("a", "n1", "i:v1.20.0", "")) // it goes, and b comes
	apply(stream.Upsert, b)
	apply(stream.Upsert, agentPod("c", "n2", "i:v1.19.1", ""))
	apply(stream.Upsert, agentPod("d", "n3", "i@sha256:0", "cilium-1.20.3"))
	apply(stream.Upsert, agentPod("e", "n4", "i:latest", ""))
	apply(stream.Upsert, agentPod("f", "", "i:v1.17.0", ""))
	apply(stream.Upsert, agentPod("g", "n5", "i:v1.16.4", ""))
	apply(stream.Upsert, agentPod("h", "n6", "i:v1.21.0", ""), "v1.21.0")
	apply(stream.Upsert, agentPod("i", "n7", "i:v1.21.0", ""))
	image, label := "the image of the container cilium-agent", "the label helm.sh/chart"
	check(
		[]string{"1.20", "1", image},
		[]string{"1.20", "2", image + ", which has v1.21.0: the nearest that is served"},
		[]string{"1.20", "1", label},
		[]string{"1.19", "1", image},
		[]string{"1.18", "1", "the configuration: neither image nor label has a version"},
		[]string{"1.17", "1", image + ", which has v1.16.4: the nearest that is served"},
	)
	for _, p := range []string{"a", "c", "d", "e", "f", "g", "h", "i"} {
		apply(stream.Delete, agentPod(p, "", "", ""))
	}
	check([]string{"1.20", "1", image})
	configured.Forced = true
	apply(stream.Upsert, b)
	check([]string{"1.18", "1", "the option cilium-release"})
}
