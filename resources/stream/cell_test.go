// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"testing"

	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

// A user makes the shared streams part of what is built and started.
func useAll(stream.Resource[slim.Pod]) {}

func TestCell(t *testing.T) {
	celltest.Check(t, stream.Cell,
		celltest.With(k8s.Cell, cell.Module("user", "Asks for a stream", cell.Invoke(useAll))),
		celltest.Args("--k8s-api-server=http://127.0.0.1:1"), celltest.OffArgs("--enable-k8s=false"))
}
