// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package zones

import (
	"testing"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// region plantest

func TestDesired(t *testing.T) {
	for _, c := range []struct {
		label, annotation string
		zone              string
		differs           bool
	}{
		{"east", "east", "east", false},
		{"east", "", "east", true},
		{"", "west", "", true}, // the node has left the zone
		{"", "", "", false},
	} {
		node, n := &slim.Node{}, &ciliumNode{}
		node.Labels = slim.MakeLabels(map[string]string{"zone": c.label})
		n.Annotations = slim.MakeLabels(map[string]string{annotation: c.annotation})
		if zone, differs := desired("zone", node, n); zone != c.zone || differs != c.differs {
			t.Errorf("%+v: zone %q, %t", c, zone, differs)
		}
	}
}

// endregion
