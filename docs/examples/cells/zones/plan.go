// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

// region plan

// annotation is where a CiliumNode is told its zone.
const annotation = "zones.example.com/zone"

// planner knows nodes with their zones, and what CiliumNodes are told. It is not
// safe for concurrent use.
type planner struct {
	zones map[string]string // by node; "" for a node without one
	told  map[string]string // by CiliumNode; "" for one that is told nothing
}

func newPlanner() *planner {
	return &planner{zones: map[string]string{}, told: map[string]string{}}
}

// desired is the zone that a CiliumNode should be told. ok is false where there
// is nothing to do: it says so already, or one of the two is not there (yet).
func (p *planner) desired(name string) (zone string, ok bool) {
	zone, isNode := p.zones[name]
	told, isCiliumNode := p.told[name]
	return zone, isNode && isCiliumNode && zone != told
}

// endregion
