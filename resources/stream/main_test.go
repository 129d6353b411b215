// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/stream/streamtest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) {
	if streamtest.Child() {
		return
	}
	waittest.Main(clustertest.Wrap(m))
}
