// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/operatortest"
)

// startRelease runs an operator of a release without a mode of slices.
func (w *world) startRelease(release string) *operatortest.Operator {
	w.t.Helper()
	return operatortest.Start(w.t, Cell, w.proxy.Kubeconfig(), "--enable-cilium-endpoint-slice", "--cilium-release="+release)
}

// Number 19 of the contract's endpoint-slices.md; CES-32: from 1.18 on a slice has endpoints of several identities, and an upgrade leaves
// what there is as it is.
func TestUpgradeFromSlicesByIdentity(t *testing.T) {
	w := newWorld(t)
	w.many("shop", 3, 1)
	w.many("shop", 2, 2)
	fresh := w.startRelease("1.18")
	w.sizes(5)
	fresh.Stop()

	if err := w.slices.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	old := w.startRelease("1.17")
	w.sizes(3, 2)
	old.Stop()

	before := len(w.writes(0))
	w.startRelease("1.18")
	w.endpoint("shop", "new", status(9))
	w.sizes(4, 2)
	if all := w.writes(before); !slices.Equal(all, []string{"update: 200"}) {
		t.Errorf("the upgrade and a new endpoint made the writes %v", all)
	}
}

// Number 31 of the contract's endpoint-slices.md: in a burst at the default rate limits an endpoint is in a slice before an agent misses
// it, after 10 s, and writes it again.
func TestEndpointsAreInSlicesBeforeAgentsMissThem(t *testing.T) {
	w := newWorld(t)
	w.startRelease("1.20")
	w.many("shop", 20, 7)
	w.many("bank", 20, 8)
	began := time.Now()
	w.endpoint("farm", "web-1", status(9))
	w.sizes(20, 20, 1)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
