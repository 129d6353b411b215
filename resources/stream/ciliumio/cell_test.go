// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ciliumio_test

import (
	"testing"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestCell(t *testing.T) {
	celltest.Check(t, ciliumio.Cell, celltest.With(k8s.Cell, stream.Cell),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--enable-k8s=false"))
}

// Every kind of the package fits its definition.
func TestKinds(t *testing.T) {
	for _, err := range []error{ciliumio.Nodes.Check(), ciliumio.Endpoints.Check(), ciliumio.Identities.Check(), ciliumio.EndpointSlices.Check()} {
		if err != nil {
			t.Error(err)
		}
	}
}
