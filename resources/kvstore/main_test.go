// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) {
	// These tests wait for an etcd more than they compute. The command line has the
	// last word.
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	waittest.Main(m)
}
