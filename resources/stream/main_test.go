// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/stream/streamtest"
)

func TestMain(m *testing.M) {
	if streamtest.Child() {
		return
	}
	goleak.VerifyTestMain(clustertest.Wrap(m))
}
