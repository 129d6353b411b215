// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package endpointslice

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/skep-operator/skep/resources/clustertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(clustertest.Wrap(m)) }
