// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"testing"

	"github.com/skep-operator/skep/resources/stream/streamtest"
)

func TestConformance(t *testing.T) {
	t.Run("local", func(t *testing.T) { streamtest.Run(t, streamtest.LocalRig()) })
	t.Run("fake/protobuf", func(t *testing.T) { streamtest.Run(t, streamtest.ServerRig(false, true)) })
	t.Run("fake/json", func(t *testing.T) { streamtest.Run(t, streamtest.ServerRig(true, true)) })
	t.Run("fake/protobuf/lists", func(t *testing.T) { streamtest.Run(t, streamtest.ServerRig(false, false)) })
	t.Run("fake/json/lists", func(t *testing.T) { streamtest.Run(t, streamtest.ServerRig(true, false)) })
}
