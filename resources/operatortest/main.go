// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"os"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/runtime/waittest"
)

// inMain is set by Main.
var inMain bool

// Main runs the tests of a package and exits:
//
//	func TestMain(m *testing.M) { operatortest.Main(m) }
//
// A write without a cause fails, a goroutine that is left over fails the package, and
// the shared cluster stops with the tests.
func Main(m *testing.M) {
	inMain = true
	os.Setenv(k8s.StrictCause, "1")
	waittest.Main(clustertest.Wrap(m))
}
