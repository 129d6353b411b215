// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import (
	"fmt"

	"github.com/skep-operator/skep/runtime/config"
)

// charts are keys that the chart of a release, and of each later one, always writes into the ConfigMap, and that of no
// earlier release does. The oldest is known by what all charts write.
var charts = [len(names)][]string{
	{"agent-not-ready-taint-key", "cilium-endpoint-gc-interval", "identity-gc-interval", "bpf-map-dynamic-size-ratio"},
	{"default-lb-service-ipam", "enable-lb-ipam", "identity-management-mode", "metrics-sampling-interval", "policy-secrets-namespace"},
	{"clustermesh-cache-ttl", "clustermesh-mcs-api-install-crds", "policy-deny-response", "proxy-cluster-max-connections", "tofqdns-preallocate-identities"},
	{"clustermesh-default-global-namespace", "enable-datapath-plugins", "enable-drift-checker", "packetization-layer-pmtud-mode", "proxy-cluster-max-pending-requests"},
}

// enough is the number of the keys of a chart that tells it: one or two may be a user's own.
const enough = 3

// ofChart returns the release of the chart that has written a configuration, by its keys; known is false where no chart has.
func ofChart(has func(key string) bool) (newest Release, known bool) {
	for _, r := range All() {
		found := 0
		for _, key := range charts[r.index()] {
			if has(key) {
				found++
			}
		}
		if found >= enough {
			newest, known = r, true
		}
	}
	return newest, known
}

// Configured is the release that options or the ConfigMap tell. It is for what has to be known at the start, or holds for the
// cluster as a whole; what depends on an agent goes by the agent's own release.
type Configured struct {
	Release
	// Forced is whether the option tells it: then it is that of all agents.
	Forced bool
	// KnownBy says what tells it, for people.
	KnownBy string
	// Unknown is whether nothing tells it: it is the newest then.
	Unknown bool
}

// Find finds the release out by the option cilium-release, and by the keys of the configuration.
func Find(values *config.Values) Configured {
	if option, _ := values.Lookup(optionName); option.Value != "" {
		if r, _, err := Parse(option.Value); err == nil {
			return Configured{Release: r, Forced: true, KnownBy: "the option " + optionName}
		}
	}
	written := func(key string) bool {
		e, is := values.Lookup(key)
		return is && (e.Source.Kind == config.FromDir || e.Source.Kind == config.FromFile)
	}
	r, known := ofChart(written)
	if !known {
		return Configured{Release: Newest(), KnownBy: "nothing: it is the newest that is served", Unknown: true}
	}
	return Configured{Release: r, KnownBy: fmt.Sprintf("the keys of its chart, such as %s", charts[r.index()][0])}
}
